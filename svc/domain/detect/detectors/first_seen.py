"""When a call site was first seen under a release, with a prompt, with definitions of tools.

Owns: which values of a trace are dated so. They are counted like anything else, so that the first slot in
which a value was counted is its date, and the shares before and after a change stand beside it. Evidence for
findings, never findings. `model_change` and `malformed_output` date models and schemas. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from svc.domain.detect.detectors.base import MeasureName, Observation, site, slot_of
from svc.domain.detect.detectors.settled_trace import SettledTrace, TracedSpan


def observe(trace: SettledTrace) -> Iterable[Observation]:
    """One unit for each value that a call site has in the trace."""
    first_rows: dict[tuple[MeasureName, str, str], TracedSpan] = {}
    for row in trace.spans:
        if (texts := trace.texts.get(row.span_id)) is None:
            continue
        if texts.release is not None:
            first_rows.setdefault(("seen_release", trace.call_site_id, texts.release), row)
        if texts.prompt is not None:
            first_rows.setdefault(("seen_prompt", row.call_site_id, texts.prompt), row)
        if texts.tools is not None:
            first_rows.setdefault(("seen_tools", row.call_site_id, texts.tools), row)
    for (measure, call_site_id, value), row in first_rows.items():
        yield Observation(measure, site(call_site_id), slot_of(row.started_at), detail=value)
