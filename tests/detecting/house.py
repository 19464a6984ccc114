"""Judges, keepers and stores over a real database, and traffic that is written and tallied at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import attrs

from svc.detecting.case_keeper import CaseKeeper
from svc.detecting.detector_runner import DetectorRunner, Stores
from svc.detecting.event_judges import ModelJudge, SecretJudge, SignatureJudge
from svc.detecting.judge import Judge
from svc.domain.detect.detectors.table import DETECTORS
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.casework import CaseworkStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.counting.tallies import JUDGES, TallyStore
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.detection.judging.due import DueStore
from svc.store.postgres.database import Connection, Database
from svc.store.spans.traces import PostgresTraceStore
from tests.store.detection.counting.test_tallying import begin, tally_all, write
from tests.store.spans.test_writing import fetch

INTERVAL_S: Final = 60.0
BATCH: Final = 1_500


class Told(Protocol):
    """Traffic to replay: the spans of each trace, in order of time."""

    def traces(self) -> Iterator[tuple[datetime, list[Any]]]: ...


@attrs.define
class Tuned:
    """What a test sets of a detector."""

    enabled: bool = True
    tuning: Mapping[str, float] = attrs.field(factory=dict)


@attrs.define
class Settings:
    """Every detector as it comes, but for those named."""

    named: dict[str, Tuned] = attrs.field(factory=dict)

    async def of(self, project_id: int) -> Mapping[str, Tuned]:
        return {name: self.named.get(name, Tuned()) for name in DETECTORS}


@attrs.define(eq=False)
class House:
    """All that detects, over one database."""

    database: Database
    settings: Settings = attrs.field(factory=Settings)
    due: DueStore = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.due = DueStore(self.database)

    @property
    def stores(self) -> Stores:
        # One holder of leases, whoever asks.
        return attrs.evolve(Stores.over(self.database, self.settings), due=self.due)

    def judges(self) -> list[DetectorRunner]:
        """One judge a detector that reads tallies."""
        made: list[DetectorRunner] = []
        special = {"secret_leak": SecretJudge, "new_signature": SignatureJudge, "model_change": ModelJudge}
        for name, detector in DETECTORS.items():
            if not detector.measures:
                continue
            judge = special.get(name, Judge)
            made.append(judge(detector, self.stores, INTERVAL_S, 2.0, at_once=name == "secret_leak"))
        return made

    def keeper(self) -> CaseKeeper:
        database = self.database
        return CaseKeeper(
            CaseworkStore(database),
            self.due,
            TallyStore(database),
            FindingStates(database),
            CaseFindings(database),
            CaseStates(database),
            lambda: datetime.now(UTC),
        )

    async def look(self, rounds: int = 3) -> None:
        """Judge everything and see to the cases, until nobody waits for anybody any more."""
        for _ in range(rounds):
            for judge in self.judges():
                await judge.round()
            await self.keeper().round()

    async def rest(self) -> None:
        """As if nothing had been counted for a while."""
        await execute(
            self.database, "update fold_state set touched_since = clock_timestamp() - interval '1 hour'"
        )

    async def forget(self) -> None:
        """As if nobody had judged anything yet; what was counted stays."""
        pairs = ", ".join(f"('{measure}', '{detector}')" for measure, detector in JUDGES)
        await execute(
            self.database,
            "truncate finding, finding_evidence, detection_case, case_finding, case_counter, case_event,"
            " bucket_state, bucket_checkpoint, judge_state, tally_due, classifier_event, rca_report",
            "insert into tally_due select b.project_id, d.detector, b.id, min(t.slot), max(t.slot), 1"
            " from tally_bucket b join tally t on t.project_id = b.project_id and t.bucket_id = b.id"
            f" join (values {pairs}) d (measure, detector) on d.measure = b.measure group by 1, 2, 3",
        )

    async def told(self, *columns: str) -> list[tuple[Any, ...]]:
        """The findings in the order of their firing."""
        rows = await fetch(
            self.database,
            f"select {', '.join(columns)} from finding order by first_seen_at, cause_key",
        )
        return [tuple(row.values()) for row in rows]

    async def cases(self) -> list[dict[str, Any]]:
        """The cases, each with the keys it lists by role."""
        rows = await fetch(
            self.database,
            "select c.number, c.detector, c.state, c.resolution, c.title,"
            " array_agg(l.role || ' ' || f.cause_key order by l.role, f.cause_key) as listed"
            " from detection_case c join case_finding l on l.case_id = c.id"
            " join finding f on f.id = l.finding_id group by c.id, 1, 2, 3, 4, 5 order by 1",
        )
        return [dict(row.items()) for row in rows]


async def execute(database: Database, *statements: str) -> None:
    async def work(connection: Connection) -> None:
        for statement in statements:
            await connection.execute(statement)

    await database.run(work)


_LATE = timedelta(minutes=1)


async def replay(
    database: Database, *stories: Told, until: datetime | None = None, since: datetime | None = None
) -> int:
    """Write, settle and tally the traces of stories that lie between two moments. Returns how many.

    Each batch comes a minute after its last trace began.
    """
    await begin(database)
    written, batch = 0, []
    for story in stories:
        for at, spans in story.traces():
            if (since is None or at >= since) and (until is None or at < until):
                batch += spans
                written, came = written + 1, at + _LATE
            if len(batch) >= BATCH:
                await write(database, *batch, came=came)
                batch = []
        if batch:
            await write(database, *batch, came=came)
            batch = []
    for _ in range(written // 10_000 + 2):
        await PostgresTraceStore(database).settle(datetime.now(UTC) + timedelta(days=40), 10_000)
    await tally_all(database, PostgresTallyQueue(database, secret_key=b"k" * 32))
    return written
