"""Plans of the questions that are asked most, measured now: for a support bundle.

Asks them as the pages do, of the project with the most traces, and keeps the plan of each statement with what
it took. Values are taken out of the plans: they may be ids of sessions or names that somebody chose.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import attrs

from protocol.storage import Outage
from svc.domain.queries.datasets import SPANS
from svc.store.postgres.database import Connection, Database
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import ask
from svc.store.reads.traces.spans import SpanFilter, SpanReads
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from svc.store.reads.usage.sessions import SessionReads

T = TypeVar("T")

_VALUE: Final = re.compile(r"'(?:[^']|'')*'")
#: What a question of a page gets, and a little for its plans.
_TIMEOUT_S: Final = 60.0
_DAYS: Final = 30
_READS: Final = ("fetch", "fetchrow", "fetchval")


@attrs.frozen
class QuestionPlans:
    """A question, how long it took, and the plans of its statements, the slowest question first."""

    question: str
    took_ms: float
    plans: tuple[str, ...]


class _Explaining(Database):
    """Answers like the database behind it, and keeps the plan of every statement."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.address, pool_size=1)
        self._database = database
        self.plans: list[str] = []

    async def run(self, work: Callable[[Connection], Awaitable[T]], **_options: Any) -> T:
        async def explained(connection: Connection) -> T:
            recorder: Any = _Seen(connection, self.plans)
            return await work(recorder)

        return await self._database.run(explained, readonly=True, timeout_s=_TIMEOUT_S)

    async def fetch(self, sql: str, *values: Any, timeout_s: float = _TIMEOUT_S) -> list[Any]:
        async def work(connection: Connection) -> list[Any]:
            return await connection.fetch(sql, *values)

        return await self.run(work)


class _Seen:
    def __init__(self, connection: Connection, plans: list[str]) -> None:
        self._connection, self._plans = connection, plans

    def __getattr__(self, verb: str) -> Any:
        attribute = getattr(self._connection, verb)
        if verb not in _READS:
            return attribute

        async def asked(sql: str, *values: Any) -> Any:
            plan = await self._connection.fetch(f"explain (analyze, buffers) {sql}", *values)
            self._plans.append(_VALUE.sub("'…'", "\n".join(row[0] for row in plan)))
            return await attribute(sql, *values)

        return asked


async def measured_plans(database: Database, now: datetime) -> list[QuestionPlans]:
    """Ask, and tell. Nothing where there is no project yet; a question that fails is told without plans."""
    # The project with the most traces, by the kept counts.
    rows = await database.fetch(
        "select p.id from project p left join project_count c on c.project_id = p.id and c.counted = 'trace'"
        " where p.deleted_at is null group by p.id order by sum(c.n) desc nulls last limit 1"
    )
    if not rows:
        return []
    plans = []
    for name, question in _questions(rows[0]["id"], now).items():
        explaining = _Explaining(database)
        began_s = time.perf_counter()
        try:
            await question(explaining)
        except Outage:
            explaining.plans.append("did not answer in time")
        took_ms = (time.perf_counter() - began_s) * 1000
        plans.append(QuestionPlans(name, round(took_ms, 1), tuple(explaining.plans)))
    return sorted(plans, key=lambda question: -question.took_ms)


def _questions(project_id: int, now: datetime) -> dict[str, Callable[[Database], Awaitable[Any]]]:
    month = (now - timedelta(days=_DAYS), now)
    spans = ask(project_id, SPANS.name, month, None)

    def traces(database: Database, **asked: Any) -> Awaitable[Any]:
        return TraceReads(database, SpanReads(database)).page(
            project_id, TraceFilter(**asked), limit=50, cursor=None
        )

    return {
        "spans of a month, counted": lambda database: QueryStore(database).count(spans),
        "spans of a month, by day": lambda database: QueryStore(database).timeseries(spans, "day"),
        "spans of a month, by model": lambda database: QueryStore(database).facets(spans, "model_id", 20),
        "newest spans": lambda database: SpanReads(database).page(
            project_id, SpanFilter(), payload=False, limit=50, cursor=None
        ),
        "newest traces": traces,
        "failed traces": lambda database: traces(database, status="error"),
        "traces that say a word": lambda database: traces(database, q="timeout"),
        "newest sessions": lambda database: SessionReads(database).page(project_id, limit=50, cursor=None),
    }
