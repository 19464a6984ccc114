"""Migrations: from empty, from each earlier state, by several at once, and never backwards."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import trio
import trio_asyncio

from protocol.otlp.reading import WireSpan, envelope, walk
from protocol.storage import StoreRefused
from svc.domain.intake.packing import pack_message
from svc.store.postgres import migrate as migrate_module
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.migrate import (
    Migration,
    SchemaBusy,
    SchemaDiffers,
    SchemaTooNew,
    migrate,
    migrations,
    steps_ahead,
)
from svc.store.spans.payloads import read_payloads
from tests.wire import request
from tests.wire import span as wire_span

STEPS = [step.number for step in migrations()]


async def schema(database: Database) -> list[tuple[object, ...]]:
    """Every table, column and index, in order."""

    async def work(connection: Connection) -> list[tuple[object, ...]]:
        columns = await connection.fetch(
            "select table_name::text, column_name::text, data_type::text, is_nullable::text"
            " from information_schema.columns"
            " where table_schema = 'public' order by 1, 2"
        )
        indexes = await connection.fetch(
            "select tablename::text, indexname::text, indexdef from pg_indexes"
            " where schemaname = 'public' order by 1, 2"
        )
        return [tuple(row.values()) for row in [*columns, *indexes]]

    return await database.run(work)


async def test_an_empty_database_is_brought_to_the_newest_step(empty_database: Database) -> None:
    assert await migrate(empty_database) == STEPS


async def test_migrating_twice_changes_nothing(store: Database) -> None:
    before = await schema(store)
    assert await migrate(store) == []
    assert await schema(store) == before


async def test_every_earlier_state_reaches_the_schema_of_an_empty_start(
    empty_database: Database, store: Database
) -> None:
    # A start at every state, each of which knows one step more.
    for number in STEPS:
        assert await migrate(empty_database, up_to=number) == [number]
    assert await schema(empty_database) == await schema(store)


@pytest.mark.parametrize("earlier", [*STEPS[7:-2:9], STEPS[-2]])
async def test_an_earlier_state_takes_all_steps_ahead_at_once(
    empty_database: Database, store: Database, earlier: int
) -> None:
    await migrate(empty_database, up_to=earlier)
    assert await migrate(empty_database) == [number for number in STEPS if number > earlier]
    assert await schema(empty_database) == await schema(store)


async def test_several_at_once_apply_each_step_once(empty_database: Database) -> None:
    applied: list[int] = []

    async def one() -> None:
        applied.extend(await migrate(empty_database))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(one)
    assert sorted(applied) == STEPS


async def test_a_schema_from_the_future_is_left_alone(store: Database) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute("insert into schema_migration values (9999, 'later', 'x')")

    await store.run(work)
    with pytest.raises(SchemaTooNew, match="9999"):
        await migrate(store)


@pytest.mark.parametrize("away", [-1, 0, 1])
async def test_a_release_lives_with_newer_steps_as_long_as_they_say_so(store: Database, away: int) -> None:
    least = STEPS[-1] + away
    await store.fetch(
        "insert into schema_migration (number, name, digest, reads_from) values (9998, 'more', 'x', 0),"
        " (9999, 'less', 'x', $1)",
        least,
    )
    if away > 0:
        with pytest.raises(SchemaTooNew, match="cannot live with step 9999"):
            await migrate(store)
    else:
        assert await migrate(store) == []


async def test_the_table_of_steps_from_before_there_were_kinds_is_taken_over(
    empty_database: Database,
) -> None:
    async def before(connection: Connection) -> None:
        await connection.execute("alter table schema_migration drop column reads_from")

    await migrate(empty_database, up_to=STEPS[2])
    await empty_database.run(before)
    applied, ahead = await steps_ahead(empty_database)
    assert (applied, [step.number for step in ahead]) == (STEPS[:3], STEPS[3:])
    assert await migrate(empty_database) == STEPS[3:]
    rows = await empty_database.fetch("select number, reads_from from schema_migration order by number")
    assert [row["reads_from"] for row in rows][:3] == [None, None, None]
    assert {row["number"]: row["reads_from"] for row in rows if row["reads_from"]} == {
        step.number: step.reads_from for step in migrations() if step.kind == "contract"
    }


async def test_tables_without_a_table_of_steps_are_refused_by_name_and_never_called_empty(
    empty_database: Database,
) -> None:
    assert (await steps_ahead(empty_database))[0] == []
    await empty_database.fetch("create table span (id int)")
    with pytest.raises(SchemaDiffers, match=r"no table of the steps .* restore a backup"):
        await steps_ahead(empty_database)


def test_every_step_says_its_kind() -> None:
    assert {step.kind for step in migrations()} == {"expand", "backfill", "contract"}
    assert Migration(120, "x", "-- contract 110\nselect 1").reads_from == 110
    assert Migration(120, "x", "-- contract\nselect 1").reads_from == 120
    assert Migration(120, "x", "-- backfill\nselect 1").reads_from == 0
    for wrong in ("select 1", "-- expand, I think\nselect 1", "\n-- expand"):
        with pytest.raises(ValueError, match="does not say its kind"):
            _ = Migration(1, "x", wrong).kind


async def test_a_step_gives_way_to_whoever_holds_its_table_and_shuts_nobody_out(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        Migration(1, "one", "-- expand\ncreate table one (id int)"),
        Migration(2, "two", "-- expand\nalter table one add column more int"),
    ]
    monkeypatch.setattr(migrate_module, "migrations", lambda: steps)
    await migrate(empty_database, up_to=1)
    held, enough, applied = trio.Event(), trio.Event(), list[int]()

    async def reads_long(connection: Connection) -> None:
        await connection.execute("lock table one in access share mode")
        await trio_asyncio.trio_as_aio(_set)(held)
        await trio_asyncio.trio_as_aio(enough.wait)()

    async def migrates() -> None:
        applied.extend(await migrate(empty_database))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(empty_database.run, reads_long)
            await held.wait()
            nursery.start_soon(migrates)
            # Whoever comes later is served between two tries, while the step has not got its lock.
            for _ in range(3):
                await empty_database.fetch("insert into one values (1)", timeout_s=10)
                await trio.sleep(0.5)
            assert applied == []
            enough.set()
    assert applied == [2]


async def _set(event: trio.Event) -> None:
    event.set()


async def test_a_step_that_never_gets_its_lock_says_so_and_leaves_nothing(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        Migration(1, "one", "-- expand\ncreate table one (id int)"),
        Migration(2, "two", "-- expand\ncreate table two (); alter table one add column more int"),
    ]
    monkeypatch.setattr(migrate_module, "migrations", lambda: steps)
    monkeypatch.setattr(migrate_module, "PATIENCE_S", 0.0)
    await migrate(empty_database, up_to=1)
    held, enough = trio.Event(), trio.Event()

    async def reads_long(connection: Connection) -> None:
        await connection.execute("lock table one in access share mode")
        await trio_asyncio.trio_as_aio(_set)(held)
        await trio_asyncio.trio_as_aio(enough.wait)()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(empty_database.run, reads_long)
        await held.wait()
        with pytest.raises(SchemaBusy, match=r"step 2 \(two\) of the schema did not get its locks"):
            await migrate(empty_database)
        enough.set()
    assert not any(row[0] == "two" for row in await schema(empty_database))


async def test_a_step_that_was_applied_with_another_text_refuses_the_start(store: Database) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute("update schema_migration set digest = 'x' where number = 3")

    await store.run(work)
    with pytest.raises(SchemaDiffers, match="step 3"):
        await migrate(store)


async def test_a_step_that_fails_leaves_those_before_it_done(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [
        Migration(1, "one", "-- expand\ncreate table one ()"),
        Migration(2, "two", "-- expand\ncreate table two ()"),
    ]
    bad = [*good, Migration(3, "three", "-- expand\ncreate table three (); select 1 / 0")]
    monkeypatch.setattr(migrate_module, "migrations", lambda: bad)
    with pytest.raises(StoreRefused):
        await migrate(empty_database)
    tables = {row[0] for row in await schema(empty_database)}
    assert "three" not in tables
    monkeypatch.setattr(
        migrate_module, "migrations", lambda: [*good, Migration(3, "three", "-- expand\nselect 1")]
    )
    assert await migrate(empty_database) == [3]


def test_comments_and_line_breaks_are_no_other_text() -> None:
    plain = Migration(1, "x", "create table x (\n  id int\n)")
    assert plain.digest == Migration(1, "x", "-- expand\ncreate table x (\n\n id int\n)").digest
    assert plain.digest != Migration(1, "x", "create table x (id text)").digest


async def test_people_from_before_step_30_keep_what_they_had(empty_database: Database) -> None:
    await migrate(empty_database, up_to=29)

    async def before(connection: Connection) -> None:
        await connection.execute(
            "insert into organization (slug, name) values ('default', 'D');"
            " insert into project (org_id, slug, name) select id, 'default', 'D' from organization;"
            # A ligature; a fullwidth letter; two that meet in their compatible form.
            " insert into account (email, email_key) values"
            " ('a', 'o\ufb03ce@x.org'), ('b', '\uff42ob@x.org'), ('c', 'eve@x.org'), ('d', '\uff45ve@x.org');"
            " insert into api_key (project_id, name, scope, token_prefix, secret_hash)"
            " select id, n, 'write', 'svc_w_12345678', 'x'"
            " from project, unnest('{made,rotated,ours}'::text[]) n"
        )
        for name, *actors in (("made", "bob"), ("rotated", "bob", "eve", "key:1"), ("ours",)):
            for action, actor in zip(("key.create", "key.rotate", "key.rotate"), actors, strict=False):
                await connection.execute(
                    "insert into audit_row (org_id, action, actor, subject_kind, subject_id, details)"
                    " select 1, $1, $2, 'key', id::text, '{}' from api_key where name = $3",
                    action,
                    actor,
                    name,
                )

    async def after(connection: Connection) -> tuple[dict[str, str], list[str], tuple[Any, ...]]:
        keys = await connection.fetch("select name, minted_by from api_key")
        accounts = await connection.fetch("select email_key from account order by email")
        org = await connection.fetchrow("select signup_role, signup_decided_at from organization")
        assert org is not None
        return (
            {row["name"]: row["minted_by"] for row in keys},
            [row[0] for row in accounts],
            tuple(org.values()),
        )

    await empty_database.run(before)
    await migrate(empty_database)
    keys, accounts, org = await empty_database.run(after)
    assert keys == {"made": "bob", "rotated": "eve", "ours": "unknown"}
    assert accounts == ["office@x.org", "bob@x.org", "eve@x.org", "\uff45ve@x.org"]
    assert org == ("viewer", None)


async def test_payloads_stored_before_there_were_frames_are_read_after(empty_database: Database) -> None:
    await migrate(empty_database, up_to=15)
    start = datetime(2026, 11, 20, 13, 5, tzinfo=UTC)
    sent = {}
    for number in (1, 0xFF << 56):
        (span,) = walk(
            request(wire_span(span_id=number.to_bytes(8, "big"), attributes={"number": number % 7}))
        )
        sent[span.span_id] = span
        key = (1, span.trace_id, span.span_id, start)
        body = pack_message(msgspec.msgpack.encode([1, b"", [envelope(span)]]))

        async def insert(connection: Connection, key: Any = key, body: bytes = body) -> None:
            await connection.execute(
                "insert into span (project_id, trace_id, span_id, started_at, kind, name, status, created_at,"
                " call_site_id, tagged) values ($1, $2, $3, $4, 'llm', 'chat', 'ok', $4, 'c', false)",
                *key,
            )
            await connection.execute("insert into span_payload values ($1, $2, $3, $4, $5)", *key, body)

        await empty_database.run(insert)
    await migrate(empty_database)

    async def work(connection: Connection) -> dict[tuple[bytes, bytes], WireSpan]:
        rows = await connection.fetch("select trace_id, span_id, started_at, frame from span")
        return await read_payloads(connection, 1, [tuple(row.values()) for row in rows])

    found = await empty_database.run(work)
    assert {span_id: span.raw for (_, span_id), span in found.items()} == {
        span_id: span.raw for span_id, span in sent.items()
    }
