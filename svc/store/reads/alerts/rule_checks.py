"""Whether a rule can be asked, and whether it can ever fire: checked when somebody makes it.

Called by the REST API and the command line. A rule that is stored already is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.refusals import BAD_RULE, Refused
from svc.domain.alerts.params import CaseParams, MetricParams, RuleParams
from svc.domain.detect.detectors.table import DETECTORS
from svc.domain.queries.datasets import DATASETS, SPANS
from svc.store.postgres.database import Database
from svc.store.reads.alerts.alert_figures import CALLS, check_question
from svc.store.reads.questions.questions import checked_filters, filter_text, unknown_values

_NAME_CHARS: Final = 60


async def check_rule(database: Database, project_id: int, params: RuleParams) -> None:
    """Raises `Refused` for a filter that its dataset does not know, and for what never happens."""
    if isinstance(params, CaseParams):
        _check_detectors(params.detectors)
    if isinstance(params, MetricParams):
        await check_question(database, project_id, params)
        _check_values(params)
        _check_bound(params)


def _check_detectors(names: Sequence[str]) -> None:
    unknown = next((name for name in names if name not in DETECTORS), None)
    if unknown is not None:
        raise Refused(
            BAD_RULE.saying(
                f"unknown detector '{unknown[:_NAME_CHARS]}', only {', '.join(DETECTORS)}",
                allowed=list(DETECTORS),
            )
        )


def _check_values(params: MetricParams) -> None:
    """Whether each filter has a value that its field can have."""
    filters = checked_filters(DATASETS.get(params.dataset, SPANS), params.filters)
    reasons = unknown_values(DATASETS.get(params.dataset, SPANS), filters)
    if not reasons and params.dataset in CALLS and "kind" in params.filters:
        kinds, kind = CALLS[params.dataset][0], filter_text(params.filters["kind"])
        if kind not in kinds:
            reasons = [f"the kind of {params.dataset} is never '{kind}', only {', '.join(kinds)}"]
    if reasons:
        raise Refused(BAD_RULE.saying(f"nothing meets this filter: {reasons[0]}"))


def _check_bound(params: MetricParams) -> None:
    """Whether the figure can ever be beyond its bound."""
    fault = None
    if params.bound == "below" and params.value == 0:
        fault = "no figure is below 0"
    elif params.bound == "above" and params.figure == "error_rate" and params.value == 1:
        fault = "no error_rate is above 1"
    elif params.bound == "falls" and params.value > 100:
        fault = "no figure falls by more than 100 percent"
    if fault is not None:
        raise Refused(BAD_RULE.saying(fault))
