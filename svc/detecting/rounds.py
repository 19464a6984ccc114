"""The table of rounds: what the detecting process does again and again, each kept for itself.

Owns: `ROUNDS` and `RoundContext`, what a round may use. A new one is a function here, or in a file beside,
and one line in the table. A round is `async () -> seconds to rest`: an `Outage` is waited out, any other
error rests it, longer each time, while the others go on. What it counts goes up in `counts`; health shows it
by its name, metrics may ask the service's `Detecting` for its counts. Work that needs the processor for
longer than a second leaves it to the others in between, or runs in a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import attrs

from svc.detecting.analyst import CaseAnalyst, RuleReports
from svc.detecting.case_keeper import AHEAD, ROUND_S, CaseKeeper
from svc.detecting.detector_runner import DetectorRunner, Stores
from svc.detecting.encoded import EncodedJudge
from svc.detecting.event_judges import ModelJudge, SecretJudge, SignatureJudge
from svc.detecting.judge import Judge
from svc.detecting.tally_updater import TallyUpdater
from svc.domain.detect.detectors.base import Detector
from svc.domain.detect.detectors.encoded import ENCODED
from svc.domain.detect.detectors.table import DETECTORS
from svc.outside.encoder import Encoder
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.casework import CaseworkStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.counting.tallies import TallyStore
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.detection.judging.due import DueStore
from svc.store.detection.judging.encoding import EncodeStore
from svc.store.postgres.database import Database

#: Does a piece of work and says for how many seconds to rest.
Work = Callable[[], Awaitable[float]]


@attrs.frozen(eq=False)
class RoundContext:
    """What rounds work with: the database, the key of secrets' marks, whether ingest needs the machine."""

    database: Database
    secret_key: bytes = attrs.field(repr=False)
    busy: Callable[[], bool]
    interval_s: float
    false_alarms_per_month: float
    encoder: Encoder | None = None


@attrs.frozen
class Round:
    """A name and how its work is built; it is built anew after each crash. One that asks an encoder is left
    out where there is none.
    """

    name: str
    build: Callable[[RoundContext, Counter[str]], Work]
    asks_encoder: bool = False


def _tally_updater(context: RoundContext, counts: Counter[str]) -> Work:
    store = PostgresTallyQueue(context.database, secret_key=context.secret_key)
    if context.encoder is not None:
        store.encoded = tuple(ENCODED)
    return TallyUpdater(store=store, busy=context.busy, counts=counts).round


def _judge(detector: Detector) -> Callable[[RoundContext, Counter[str]], Work]:
    kind = _EVENT_JUDGES.get(detector.name, Judge)

    def build(context: RoundContext, counts: Counter[str]) -> Work:
        return kind(
            detector,
            Stores.over(context.database, DetectorSettingStore(context.database)),
            context.interval_s,
            context.false_alarms_per_month,
            counts,
            at_once=detector.name in AHEAD,
        ).round

    return build


def _encoded(detector: Detector) -> Callable[[RoundContext, Counter[str]], Work]:
    def build(context: RoundContext, counts: Counter[str]) -> Work:
        if context.encoder is None:
            raise AssertionError("a round that asks an encoder runs where there is one")
        return EncodedJudge(
            detector,
            context.encoder,
            EncodeStore(context.database),
            DueStore(context.database),
            DetectorSettingStore(context.database),
            _now,
            context.interval_s,
            counts,
        ).round

    return build


def _case_keeper(context: RoundContext, counts: Counter[str]) -> Work:
    database = context.database
    return CaseKeeper(
        work=CaseworkStore(database),
        due=DueStore(database),
        tallies=TallyStore(database),
        findings=FindingStates(database),
        lists=CaseFindings(database),
        states=CaseStates(database),
        now=_now,
        counts=counts,
        round_s=min(ROUND_S, context.interval_s),
    ).round


def _case_analyst(context: RoundContext, counts: Counter[str]) -> Work:
    return CaseAnalyst(store=RuleReports(context.database), now=_now, counts=counts).round


def _now() -> datetime:
    return datetime.now(UTC)


#: Detectors whose single events count; all others are judged by an engine.
_EVENT_JUDGES: Final[Mapping[str, type[DetectorRunner]]] = {
    "secret_leak": SecretJudge,
    "new_signature": SignatureJudge,
    "model_change": ModelJudge,
}

ROUNDS: Final = (
    Round("trace-folder", _tally_updater),
    *(
        Round(f"judge-{name.replace('_', '-')}", _judge(detector))
        for name, detector in DETECTORS.items()
        if detector.measures
    ),
    *(Round(f"judge-{name}", _encoded(DETECTORS[name]), asks_encoder=True) for name in ENCODED),
    Round("case-keeper", _case_keeper),
    Round("case-analyst", _case_analyst),
)
