"""What the tools read: every store behind them over one database, the clock, and the room of an answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import attrs

from svc.front.mcp.cut import KEPT_BYTES
from svc.store.agents.reads import RunReads
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.detection.cases.findings import FindingStore
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.detection.taxonomy import TaxonomyStore
from svc.store.feedback.sets import SetStore
from svc.store.postgres.database import Database
from svc.store.reads.first_look import FirstLookReads
from svc.store.reads.payloads import ROOM_BYTES, Opening
from svc.store.reads.projects import ProjectReads
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.traces import TraceReads
from svc.store.reads.usage.call_sites import CallSiteReads
from svc.store.reads.usage.compare import CompareStore
from svc.store.reads.usage.sessions import SessionReads


@attrs.frozen
class Reads:
    """Every store that a tool may read, the clock, and the room that the answer has."""

    projects: ProjectReads
    call_sites: CallSiteReads
    taxonomy: TaxonomyStore
    cases: CaseStore
    findings: FindingStore
    evidence: EvidenceStore
    traces: TraceReads
    spans: SpanReads
    sessions: SessionReads
    queries: QueryStore
    comparing: CompareStore
    detectors: DetectorSettingStore
    runs: RunReads
    first_look: FirstLookReads
    sets: SetStore
    now: Callable[[], datetime]
    #: What detectors need and this install has.
    installed: frozenset[str] = frozenset()
    #: The model provider that agents have here by themselves.
    ambient: str | None = None
    #: Whether tools take arguments, and answers hold keys, that the specification does not name.
    extensions: bool = True
    room_bytes: int = ROOM_BYTES
    #: What may still be opened for the answer, or for all of its batch.
    opening: Opening | None = None

    @property
    def payload_bytes(self) -> int:
        """The room for payloads, beside what is said of those that have none."""
        return max(0, self.room_bytes - KEPT_BYTES)

    @classmethod
    def of(
        cls,
        database: Database,
        queries: QueryStore,
        now: Callable[[], datetime],
        installed: frozenset[str] = frozenset(),
        ambient: str | None = None,
        history: Database | None = None,
        *,
        extensions: bool = True,
    ) -> Reads:
        """All of them over one database, or what traffic brought over another one."""
        history = history or database
        spans = SpanReads(history)
        return cls(
            ProjectReads(database),
            CallSiteReads(history),
            TaxonomyStore(database),
            CaseStore(database),
            FindingStore(database),
            EvidenceStore(database),
            TraceReads(history, spans),
            spans,
            SessionReads(history),
            queries,
            CompareStore(history),
            DetectorSettingStore(database),
            RunReads(database),
            FirstLookReads(history),
            SetStore(database),
            now,
            installed,
            ambient,
            extensions,
        )
