"""COPY by hand: whatever a row holds, the table holds after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.storage import StoreRefused
from svc.domain.spans.span import CostSource, Kind, Repeats, SpanRow, Status
from svc.store.postgres.database import Connection, Database
from svc.store.spans import encoding
from svc.store.spans.copying import copy_spans
from svc.store.spans.encoding import COLUMNS, Copied, microseconds, numeric
from tests.examples import examples
from tests.plain import plain

ids = st.binary(min_size=16, max_size=16)
moments = st.datetimes(datetime(1970, 1, 1), datetime(2554, 7, 21), timezones=st.just(UTC))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
counts = st.none() | st.integers(0, 2**53)
costs = (
    st.none() | st.decimals(0, Decimal("999999999.999999999999"), places=12) | st.decimals(0, 100, places=3)
)

rows = st.builds(
    SpanRow,
    trace_id=ids,
    span_id=st.binary(min_size=8, max_size=8),
    parent_span_id=st.none() | st.binary(min_size=8, max_size=8),
    kind=st.sampled_from(get_args(Kind)),
    name=texts,
    status=st.sampled_from(get_args(Status)),
    error_type=st.none() | texts,
    error_message=st.none() | texts,
    started_at=moments,
    ended_at=st.none() | moments,
    call_site_id=texts,
    tagged=st.booleans(),
    session_id=st.none() | texts,
    user_id=st.none() | texts,
    provided_model_name=st.none() | texts,
    model_id=st.none() | texts,
    provider=st.none() | texts,
    response_id=st.none() | texts,
    input_tokens=counts,
    output_tokens=counts,
    cache_read_tokens=counts,
    cache_write_tokens=counts,
    reasoning_tokens=counts,
    input_cost=costs,
    output_cost=costs,
    cache_read_cost=costs,
    cache_write_cost=costs,
    total_cost=costs,
    cost_source=st.none() | st.sampled_from(get_args(CostSource)),
    input_preview=st.none() | texts,
    output_preview=st.none() | texts,
    tool_calls=st.just(()),
    usage_repeats=st.none() | st.sampled_from(get_args(Repeats)),
    service_tier=st.none() | texts,
    input_audio_tokens=counts,
    output_audio_tokens=counts,
    cache_write_1h_tokens=counts,
    price_book=st.none() | texts,
    facets=st.none() | texts,
)


async def copied(database: Database, sent: list[Copied]) -> list[dict[str, Any]]:
    """The rows as they stand in the table, in the order sent; nothing stays behind."""

    async def work(connection: Connection) -> list[dict[str, Any]]:
        await copy_spans(connection, sent)
        found = await connection.fetch("select * from span order by frame")
        await connection.execute("delete from span")
        return [dict(row.items()) for row in found]

    return await database.run(work)


#: What a row has beside its columns: calls have rows of their own, attributes are stored as facets.
NO_COLUMNS = {"tool_calls", "attributes"}


async def test_every_column_holds_what_its_row_held(store: Database) -> None:
    sent: list[Copied] = []

    # More rows than a piece has.
    @settings(max_examples=examples(300))
    @given(project=st.integers(1, 2**62), at=moments, digest=st.integers(-(2**63), 2**63 - 1), row=rows)
    def make(project: int, at: datetime, digest: int, row: SpanRow) -> None:
        frame = len(sent)
        sent.append(
            (project, at, frame, digest, msgspec.structs.replace(row, trace_id=frame.to_bytes(16, "big")))
        )

    make()
    found = await copied(store, sent)
    assert found == [
        {
            "project_id": project,
            "created_at": at,
            "frame": frame,
            "digest": digest,
            **{name: getattr(row, name) for name in SpanRow.__struct_fields__ if name not in NO_COLUMNS},
        }
        for project, at, frame, digest, row in sent
    ]
    assert await copied(store, []) == []


async def test_every_column_of_the_table_is_copied(store: Database) -> None:
    async def work(connection: Connection) -> set[str]:
        rows = await connection.fetch(
            "select attname::text from pg_attribute where attrelid = 'span'::regclass and attnum > 0"
            " and not attisdropped"
        )
        return {row["attname"] for row in rows}

    assert await store.run(work) == set(COLUMNS)
    assert len(COLUMNS) == len(set(COLUMNS))


DECIMALS = """0 0.000 1 9999 10000 10001.5 0.0001 0.00010000 0.00001 123456789.000000000001 -0.5 -20000 1E+9
    1E-12 100000000 999999999.9999999999999999 0.12345678901234567 1234567890123.5 0.9999 99990000.0"""


@pytest.mark.parametrize("written", DECIMALS.split())
async def test_a_decimal_keeps_its_value_and_its_scale(store: Database, written: str) -> None:
    value = Decimal(written)

    async def work(connection: Connection) -> tuple[Decimal, str]:
        await connection.execute("create temporary table one (n numeric) on commit drop")

        async def source() -> Any:
            yield b"PGCOPY\n\xff\r\n\x00" + bytes(8) + b"\x00\x01" + numeric(value) + b"\xff\xff"

        await connection.copy_to_table("one", source=source(), format="binary")
        row: Any = await connection.fetchrow("select n, n::text as said from one")
        return row["n"], row["said"]

    assert await store.run(work) == (value, f"{value:f}")


def test_what_is_no_number_is_not_copied() -> None:
    for odd in ("NaN", "Infinity"):
        with pytest.raises(ValueError, match="invalid literal"):
            numeric(Decimal(odd))


def test_moments_are_counted_from_the_year_2000() -> None:
    assert microseconds(datetime(2000, 1, 1, tzinfo=UTC)) == 0
    assert microseconds(datetime(1999, 12, 31, 23, 59, 59, 999_999, UTC)) == -1
    assert microseconds(datetime(2000, 1, 2, tzinfo=UTC) + timedelta(microseconds=7)) == 86_400_000_007


async def test_a_text_that_the_database_cannot_hold_is_refused(store: Database) -> None:
    row = msgspec.structs.replace(_plain(), name="a\x00b")
    with pytest.raises(StoreRefused):
        await copied(store, [(1, row.started_at, 1, 0, row)])


def test_what_is_remembered_is_bounded() -> None:
    source = plain(encoding)
    at = datetime(2026, 11, 20, tzinfo=UTC)
    rows = [
        (
            1,
            at,
            1,
            0,
            msgspec.structs.replace(_plain(), input_tokens=n, total_cost=n + Decimal("0.71"), name=str(n)),
        )
        for n in range(2 * source._REMEMBERED_BOUND)
    ]
    assert b"".join(source.encode(rows)) == b"".join(encoding.encode(rows))
    for remembered in (source._shared, source._numbers, source._costs):
        assert 0 < len(remembered) <= source._REMEMBERED_BOUND


def _plain() -> SpanRow:
    nothing: dict[str, Any] = dict.fromkeys(SpanRow.__struct_fields__)
    at = datetime(2026, 11, 20, tzinfo=UTC)
    known = {"trace_id": bytes(16), "span_id": bytes(8), "kind": "llm", "name": "n", "status": "ok"}
    return SpanRow(
        **{**nothing, **known, "started_at": at, "call_site_id": "c", "tagged": False, "tool_calls": ()}
    )
