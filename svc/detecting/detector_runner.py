"""What every judge of a detector does alike: look at each project in which something is due, one at a time.

Owns `DetectorRunner`, the order of a pass, and what it knows beside its tallies. A judge says what to do with
a subject. There is one judge for each detector, so that one that raises is left out alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import attrs
import trio

from protocol.detection import LiveFinding, ReferenceMove
from protocol.storage import Outage
from svc.domain.detect.detectors.base import Detector
from svc.domain.detect.engine.bars import budget_months
from svc.domain.detect.findings.bucket import BucketState, Watched
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.cases.findings import FindingStore
from svc.store.detection.cases.references import ReferenceStore
from svc.store.detection.counting.tallies import TallyStore
from svc.store.detection.judging.bucket_states import BucketStates
from svc.store.detection.judging.due import DueBucket, DueStore, DueWork
from svc.store.detection.judging.judge_evidence import JudgeEvidenceStore
from svc.store.detection.judging.subject_traces import SubjectTraceStore
from svc.store.postgres.database import Database

#: How soon a judge comes back when slots are still being counted, or a case is to hear of something first.
SOON_S: Final = 5.0


class TunedDetector(Protocol):
    """What a project sets of a detector."""

    @property
    def enabled(self) -> bool: ...
    @property
    def tuning(self) -> Mapping[str, float]: ...


class SettingsStore(Protocol):
    """Where that is read."""

    async def of(self, project_id: int) -> Mapping[str, TunedDetector]: ...


@attrs.frozen(eq=False)
class Stores:
    """What judges read and write."""

    due: DueStore
    states: BucketStates
    tallies: TallyStore
    evidence: JudgeEvidenceStore
    traces: SubjectTraceStore
    findings: FindingStore
    verbs: FindingStates
    references: ReferenceStore
    settings: SettingsStore

    @classmethod
    def over(cls, database: Database, settings: SettingsStore) -> Stores:
        """All of them over one database."""
        return cls(
            due=DueStore(database),
            states=BucketStates(database),
            tallies=TallyStore(database),
            evidence=JudgeEvidenceStore(database),
            traces=SubjectTraceStore(database),
            findings=FindingStore(database),
            verbs=FindingStates(database),
            references=ReferenceStore(database),
            settings=settings,
        )


@attrs.frozen(eq=False)
class Scope:
    """What one pass over a project needs beside its tallies."""

    project_id: int
    work: DueWork
    months: float
    tuning: Mapping[str, float]
    live: Sequence[LiveFinding]
    moves: Mapping[str, ReferenceMove]
    #: Subjects by when they appeared, of the measures that were asked for.
    orders: dict[str, Mapping[str, int]] = attrs.field(factory=dict)
    #: What was known of every subject when somebody first asked.
    states: dict[Watched, BucketState] = attrs.field(factory=dict)


@attrs.define(eq=False)
class DetectorRunner(ABC):
    """Judges all projects for one detector; what to do with a subject is the judge's. `at_once` is for
    those whose single events count, which need no watermark.
    """

    detector: Detector
    stores: Stores
    interval_s: float
    false_alarms_per_month: float
    #: What was done: `looks` at projects, `subjects` judged, projects that `failed`.
    counts: Counter[str] = attrs.field(factory=Counter)
    at_once: bool = False

    async def round(self) -> float:
        """Judge what is due in every project. Returns the seconds until it is worth looking again.

        A project that cannot be judged keeps no other from its turn; what it raised goes up at the end.
        """
        soon = False
        first_error: Exception | None = None
        for project_id in await self.stores.due.waiting(self.detector.name):
            try:
                soon |= await self._project(project_id)
            except Outage:
                raise
            except Exception as error:
                first_error = first_error or error
                self.counts["failed"] += 1
        if first_error is not None:
            raise first_error
        return min(SOON_S, self.interval_s) if soon else self.interval_s

    async def _project(self, project_id: int) -> bool:
        stores, name = self.stores, self.detector.name
        settings = await stores.settings.of(project_id)
        tuned = settings[name]
        if not tuned.enabled:
            return False
        precursor = self.detector.after
        if precursor is not None and not settings[precursor].enabled:
            precursor = None
        work = await stores.due.take(project_id, name, at_once=self.at_once, after=precursor)
        if work is None:
            return False
        self.counts["looks"] += 1
        try:
            months = budget_months(await stores.states.armed(project_id), self.false_alarms_per_month)
            scope = Scope(
                project_id,
                work,
                months,
                tuned.tuning,
                [
                    finding
                    for finding in await stores.findings.live(project_id)
                    if finding.cause.detector == name
                ],
                {
                    move.reference: move
                    for move in await stores.references.pending(project_id)
                    if move.detector == name
                },
            )
            waits, first_error = False, None
            for bucket, due in self._subjects(scope).items():
                try:
                    waits |= await self.subject(scope, bucket, due)
                except Outage:
                    raise
                except Exception as error:  # the others of the project are judged all the same
                    first_error = first_error or error
                self.counts["subjects"] += 1
                await trio.lowlevel.checkpoint()
            if first_error is not None:
                raise first_error
        except Exception as error:
            if not isinstance(error, Outage):
                await stores.due.give_up(project_id, name, None, failure=type(error).__name__)
            raise
        await stores.due.give_up(project_id, name, work.until, waits=waits)
        return waits or not work.quiet

    @abstractmethod
    async def subject(self, scope: Scope, bucket: Watched, due: Sequence[DueBucket]) -> bool:
        """Judge one subject. Whether it waits for a case to hear of something first."""

    def _subjects(self, scope: Scope) -> Mapping[Watched, Sequence[DueBucket]]:
        """What is due, and what people have asked of besides."""
        subjects = dict(scope.work.due)
        for reference in scope.moves:
            bucket = Watched.of_reference(reference)
            if bucket is not None and bucket.measure in self.detector.measures:
                subjects.setdefault(bucket, ())
        return subjects
