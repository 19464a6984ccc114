"""Answers of the stores of questions as their JSON is read: what was not asked for is missing.

Used by tests that compare whole answers; those of the fronts read the JSON itself.
"""

from __future__ import annotations

from typing import Any

import msgspec

from svc.store.postgres.database import Database
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import Question
from svc.store.reads.usage.compare import CompareStore
from svc.store.reads.usage.compared_sides import Side


class JsonQueries:
    """`QueryStore`, each answer as objects and lists."""

    def __init__(self, database: Database) -> None:
        self.store = QueryStore(database)

    async def count(self, question: Question) -> dict[str, Any]:
        """As `QueryStore.count`."""
        return as_json(await self.store.count(question))

    async def timeseries(self, question: Question, *asked: Any, **named: Any) -> dict[str, Any]:
        """As `QueryStore.timeseries`."""
        return as_json(await self.store.timeseries(question, *asked, **named))

    async def facets(self, question: Question, *asked: Any, **named: Any) -> dict[str, Any]:
        """As `QueryStore.facets`."""
        return as_json(await self.store.facets(question, *asked, **named))

    async def search(self, question: Question, *asked: Any, **named: Any) -> dict[str, Any]:
        """As `QueryStore.search`."""
        return as_json(await self.store.search(question, *asked, **named))


class JsonComparing:
    """`CompareStore`, each answer as objects and lists."""

    def __init__(self, database: Database) -> None:
        self.store = CompareStore(database)

    async def compare(self, project_id: int, baseline: Side, comparison: Side) -> dict[str, Any]:
        """As `CompareStore.compare`."""
        return as_json(await self.store.compare(project_id, baseline, comparison))


def as_json(answer: msgspec.Struct) -> dict[str, Any]:
    """An answer as objects and lists."""
    plain: dict[str, Any] = msgspec.to_builtins(answer)
    return plain
