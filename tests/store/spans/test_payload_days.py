"""Payloads of many days are read by as many questions as those of one, each day from its own partition."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs

from svc.store.postgres.database import Connection, Database
from svc.store.spans.payloads import SpanKey, read_envelopes
from tests.store.spans.test_writing import NOW, PROJECT, fetch, one, rows, store_of

DAYS = [NOW - timedelta(days=age) for age in (2, 5, 9, 14)]
BETWEEN = [NOW - timedelta(days=age) for age in (3, 7, 11)]


@attrs.define
class Planned:
    """A connection that keeps the plan of every question as it was carried out."""

    connection: Connection
    plans: list[str] = attrs.field(factory=list)

    async def fetch(self, sql: str, *values: Any) -> Any:
        plan = await self.connection.fetch(f"explain (analyze, costs off, buffers off) {sql}", *values)
        self.plans.append("\n".join(row[0] for row in plan))
        return await self.connection.fetch(sql, *values)


def conversation(number: int, day: datetime) -> list[Any]:
    """Two turns, of which the second sends again what the first said, and all days say the same."""
    said = [{"role": "user", "content": "the same and rather long message " * 10}]
    said += [{"role": "assistant", "content": f"{day:%d} another and rather long message " * 10}]
    return [
        one(
            2 * number + turn,
            start=day,
            trace_id=bytes([number]) * 16,
            attributes={"gen_ai.input.messages": json.dumps(said[: turn + 1])},
        )
        for turn in (0, 1)
    ]


async def asked(store: Database, keys: Sequence[SpanKey], **most: int) -> tuple[dict[bytes, Any], list[str]]:
    async def work(connection: Connection) -> tuple[dict[bytes, Any], list[str]]:
        planned = Planned(connection)
        found = await read_envelopes(planned, PROJECT, keys, **most)  # type: ignore[arg-type]
        return {span_id: said for (_, span_id), said in found.items()}, planned.plans

    return await store.run(work)


async def test_payloads_of_many_days_are_read_by_as_many_questions_as_those_of_one(store: Database) -> None:
    sent: dict[bytes, bytes] = {}
    for number, day in enumerate([*DAYS, *BETWEEN], start=1):
        for made in conversation(number, day):
            sent[made.span_id] = made.SerializeToString()
            await store_of(store).write(rows(made))
    stored = await fetch(store, "select trace_id, span_id, started_at, frame from span order by 3, 2")
    keys: list[SpanKey] = [tuple(row.values()) for row in stored if row["started_at"] in DAYS]
    for most in ({}, {"most_bytes": 1_000_000}):
        whole, plans = await asked(store, keys, **most)
        # Each as it came, among what it came in.
        assert {key[1] for key in keys} == {
            span_id for span_id, said in whole.items() if sent[span_id] in said
        }
        few, as_many = await asked(store, [key for key in keys if key[2] == DAYS[0]], **most)
        assert len(few) == 2
        assert len(plans) == len(as_many)
        assert any("span_message" in plan for plan in plans)
        for plan in plans:
            if "span_message" in plan:
                opened = re.findall(r"Scan using \S+ on span_message_(\d+) .*\((?:actual|never)", plan)
                never = re.findall(r"on span_message_(\d+) .*\(never executed\)", plan)
                assert set(opened) - set(never) == {f"{day:%Y%m%d}" for day in DAYS}
