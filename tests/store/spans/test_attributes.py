"""Attribute values as characters: stable, separate by project, bounded, gone when they are hidden."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from protocol.otlp.reading import WireSpan
from protocol.refusals import Refused
from svc.domain.attributes.census import PROMOTED_AFTER, KeyCensus
from svc.domain.attributes.conventions import MOST_KEYS
from svc.domain.intake.batches import StoredSpan
from svc.ingest.attributes import AttributeExchange
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.projects import lock_builder
from svc.store.postgres.database import Connection, Database
from svc.store.reads.questions.attributes import AttributeReads, promoted_fields
from svc.store.reads.questions.questions import ask
from svc.store.spans import attribute_codes, attribute_keys
from svc.store.spans.attribute_codes import AttributeCodes, character
from svc.store.spans.attribute_keys import NO_NAME, AttributeKeys
from tests.domain import mapped, wire
from tests.store.as_json import JsonQueries
from tests.store.spans.test_writing import NOW, PROJECT, Clock, fetch, one, rows, store_of

LATER = NOW + timedelta(hours=1)
CHAT = {"gen_ai.operation.name": "chat"}


@given(st.integers(0, 0x10FFFF - 0x800 - 2))
def test_each_number_has_a_character_of_its_own_that_is_text(number: int) -> None:
    text = character(number)
    assert text.encode().decode() == text
    assert text not in ("\x00", character(number + 1))


async def values(store: Database, project: int = PROJECT) -> dict[str, set[str]]:
    """What the spans of a project say, by field, as the dictionary tells it."""
    found: dict[str, set[str]] = {}
    for row in await fetch(
        store,
        "select v.field, v.value from span s cross join lateral string_to_table(s.facets, null) as c (code)"
        " join attribute_value v on v.project_id = s.project_id and v.code = c.code"
        " where s.project_id = $1",
        project,
    ):
        found.setdefault(row["field"], set()).add(row["value"])
    return found


def shop(number: int, env: str, project: int = PROJECT, **attributes: Any) -> Any:
    sent = one(1, trace_id=number.to_bytes(16, "big"), attributes={"env": env, **attributes})
    return rows(sent, project=project, resource={"service.name": "shop"})


async def test_a_span_has_the_values_of_its_fields_and_no_other(store: Database) -> None:
    spans = store_of(store)
    await spans.write([*shop(1, "prod"), *shop(2, "test"), *rows(one(1, trace_id=b"\7" * 16))])
    stored = await fetch(store, "select facets from span order by trace_id")
    assert [len(row["facets"] or "") for row in stored] == [2, 2, 0]
    assert stored[2]["facets"] is None
    assert await values(store) == {"service": {"shop"}, "environment": {"prod", "test"}}


async def test_two_writers_that_see_a_value_first_agree_on_it(store: Database) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(store_of(store, Clock()).write, shop(number + 1, "prod"))
    stored = await fetch(store, "select distinct facets from span")
    assert len(stored) == 1
    assert await values(store) == {"service": {"shop"}, "environment": {"prod"}}


async def test_projects_share_no_dictionary(store: Database) -> None:
    spans = store_of(store)
    await spans.write(shop(1, "prod"))
    await spans.write(shop(1, "test", project=2))
    assert await values(store, 1) == {"service": {"shop"}, "environment": {"prod"}}
    assert await values(store, 2) == {"service": {"shop"}, "environment": {"test"}}


async def test_beyond_the_most_values_all_are_one_and_say_so(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attribute_codes, "MOST_VALUES", 3)
    spans = store_of(store)
    for number in range(6):
        await spans.write(shop(number + 1, f"env {number}"))
    assert (await values(store))["environment"] == {"env 0", "env 1", "env 2", ""}
    # Another process comes to the same.
    await store_of(store, Clock()).write([*shop(8, "env 1"), *shop(9, "env 5")])
    stored = await fetch(
        store,
        "select v.value from span s join attribute_value v on strpos(s.facets, v.code) > 0"
        " where v.field = 'environment' and trace_id = any($1::bytea[]) order by trace_id",
        [n.to_bytes(16, "big") for n in (8, 9)],
    )
    assert [row["value"] for row in stored] == ["env 1", ""]


async def test_a_field_without_room_asks_the_database_for_nothing_more(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attribute_codes, "MOST_VALUES", 3)
    spans, elsewhere = store_of(store), store_of(store, Clock())
    await elsewhere.write(shop(1, "env 0"))
    for number in range(1, 6):
        await spans.write(shop(number + 1, f"env {number}"))
    asked = 0

    async def run(*_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        raise AssertionError("the database was asked")

    monkeypatch.setattr(Database, "run", run)
    monkeypatch.setattr(Database, "fetch", run)
    for number in (0, 2, 7, 8):
        decoded = shop(number + 20, f"env {number}")
        await spans.codes.encode(decoded)
    assert asked == 0


async def test_hidden_values_are_deleted_and_come_back_only_under_new_characters(store: Database) -> None:
    await ProjectStore(store).make_default()
    spans, keys = store_of(store), AttributeKeys(store)
    await spans.write(shop(1, "prod"))
    (before,) = await fetch(store, "select code from attribute_value where field = 'environment'")
    assert await keys.hide(PROJECT, "environment", LATER)
    assert await values(store) == {"service": {"shop"}}
    assert not await fetch(store, "select from attribute_value where value = 'prod'")
    spans.codes.adopt((await keys.states()).hidden)
    await spans.write(shop(2, "prod"))
    assert await values(store) == {"service": {"shop"}}
    assert await keys.promote(PROJECT, "environment", LATER) is None
    spans.codes.adopt((await keys.states()).hidden)
    await spans.write(shop(3, "prod"))
    (after,) = await fetch(store, "select code from attribute_value where field = 'environment'")
    assert after["code"] != before["code"]
    found = await fetch(store, "select trace_id from span where strpos(facets, $1) > 0", after["code"])
    assert [row["trace_id"][-1] for row in found] == [3]


def noted(census: KeyCensus, key: str, *said: Any, times: int = PROMOTED_AFTER) -> None:
    for number in range(times):
        census.note(PROJECT, wire({key: said[number % len(said)]}))


async def test_a_key_worth_it_becomes_a_field_by_itself_for_what_comes_then(store: Database) -> None:
    spans = store_of(store)
    exchange = AttributeExchange(codes=spans.codes)
    for _ in range(3):
        # A round looks into some spans of many.
        noted(exchange.census, "shop.tier", "gold", "silver")
        await exchange.exchange(store, LATER)
    span = wire({"shop.tier": "gold"})
    assert exchange.reader.pairs(PROJECT, span, mapped()) == ("attr.shop.tier", "gold")
    assert exchange.reader.pairs(PROJECT + 1, span, mapped()) == ()
    (row,) = await fetch(store, "select * from attribute_key")
    assert (row["field"], row["state"], row["unfit"]) == ("attr.shop.tier", "promoted", None)
    assert row["spans"] >= PROMOTED_AFTER
    assert b"gold" not in row["hashes"]


async def test_secrets_and_persons_are_never_fields_and_others_only_by_hand(store: Database) -> None:
    await ProjectStore(store).make_default()
    keys, census = AttributeKeys(store), KeyCensus()
    noted(census, "shop.api_key", "a", "b")
    noted(census, "shop.contact_email", "a", "b")
    noted(census, "order.ref", "1", "2")
    await keys.add(census.take(), LATER)
    assert (await keys.states()).promoted == {}
    never = "Attributes that may hold secrets or personal data are never made fields."
    assert await keys.promote(PROJECT, "attr.shop.api_key", LATER) == never
    assert await keys.promote(PROJECT, "attr.shop.contact_email", LATER) == never
    assert await keys.promote(PROJECT, "attr.nobody.said", LATER) == "No span has this attribute."
    assert await keys.promote(PROJECT, "attr.order.ref", LATER) is None
    assert (await keys.states()).promoted == {PROJECT: {"order.ref": "attr.order.ref"}}
    assert not await keys.hide(PROJECT, "attr.nobody.said", LATER)


async def test_a_renamed_field_has_its_values_and_those_to_come_under_its_new_name(store: Database) -> None:
    spans = store_of(store)
    exchange = AttributeExchange(codes=spans.codes)
    for _ in range(3):
        noted(exchange.census, "shop.tier", "gold", "silver")
        await exchange.exchange(store, LATER)
    span = wire({"shop.tier": "gold"})
    await ProjectStore(store).make_default()
    before = stored(exchange, span, 1)
    await spans.write([before])
    keys = AttributeKeys(store)
    assert await keys.rename(PROJECT, "attr.shop.tier", " plan ") is None
    await exchange.exchange(store, LATER)
    after = stored(exchange, span, 2)
    assert after.row.attributes == ("attr.plan", "gold")
    await spans.write([after])
    assert after.row.facets == before.row.facets
    reads = AttributeReads(store)
    assert await reads.names(PROJECT) == ["attr.plan"]
    assert await promoted_fields(store, PROJECT) == ["attr.plan"]
    question = ask(PROJECT, "spans", (None, None), {"attr.plan": "gold"})
    assert (await JsonQueries(store).count(question))["count"] == 2
    with pytest.raises(Refused, match=r"'attr.shop.tier' is called 'attr.plan' in this project"):
        await JsonQueries(store).count(ask(PROJECT, "spans", (None, None), {"attr.shop.tier": "gold"}))
    # Back again, and hidden: nothing is left behind under either name.
    assert await keys.rename(PROJECT, "attr.shop.tier", "tenant") is None
    assert await reads.names(PROJECT) == ["tenant"]
    assert await keys.rename(PROJECT, "attr.shop.tier", "") is None
    assert await reads.names(PROJECT) == ["attr.shop.tier"]
    assert await keys.rename(PROJECT, "attr.shop.tier", "plan") is None
    assert await keys.hide(PROJECT, "attr.shop.tier", LATER)
    assert await reads.names(PROJECT) == []


def stored(exchange: AttributeExchange, span: WireSpan, number: int) -> StoredSpan:
    """A span as a decoder hands it to the writer."""
    (row,) = rows(one(number), project=PROJECT)
    row.row.attributes = exchange.reader.pairs(PROJECT, span, mapped())
    return row


async def test_a_name_is_plain_and_belongs_to_one_field(store: Database) -> None:
    await ProjectStore(store).make_default()
    keys, census = AttributeKeys(store), KeyCensus()
    for _ in range(3):
        noted(census, "shop.tier", "gold", "silver")
        noted(census, "shop.zone", "north", "south")
        noted(census, "order.ref", "1", "2")
        await keys.add(census.take(), LATER)
    for field in ("attr.shop.tier", "attr.shop.zone"):
        assert await keys.promote(PROJECT, field, LATER) is None
    await store_of(store).write(shop(1, "prod", **{"tenant.id": "acme"}))
    for typed in ("two words", "1st", "x" * 101, "naïve", "attr.'; drop"):
        assert await keys.rename(PROJECT, "attr.shop.tier", typed) == NO_NAME
    for typed, called in (
        ("shop.zone", "attr.shop.zone"),
        ("attr.order.ref", "attr.order.ref"),
        ("tenant", "tenant"),
    ):
        refusal = f"Something else is called {called} here; choose a name that is free."
        assert await keys.rename(PROJECT, "attr.shop.tier", typed) == refusal
    assert await keys.rename(PROJECT, "attr.shop.zone", "zone") is None
    assert await keys.rename(PROJECT, "attr.shop.tier", "zone") == (
        "Something else is called attr.zone here; choose a name that is free."
    )
    no_field = "Only attributes that are fields of yours have a name to change."
    for field in ("attr.order.ref", "tenant", "attr.nobody.said"):
        assert await keys.rename(PROJECT, field, "mine") == no_field


async def test_what_a_field_costs_is_what_its_values_take(store: Database) -> None:
    await ProjectStore(store).make_default()
    spans = store_of(store)
    await spans.write(rows(one(1, attributes={"tenant.id": "acme"})))
    for number in range(200):
        await spans.write(rows(one(number + 2, attributes={"env": f"e{number}"})))
    costs = await AttributeReads(store).costs(PROJECT)
    assert costs.keys() == {"tenant", "environment"}
    assert costs["environment"].disk_bytes > 100 * costs["tenant"].disk_bytes
    # The first characters take one byte, those behind them two.
    assert (costs["tenant"].span_bytes, costs["environment"].span_bytes) == (1, 2)


async def test_what_a_person_hid_is_not_promoted_again(store: Database) -> None:
    await ProjectStore(store).make_default()
    keys, census = AttributeKeys(store), KeyCensus()
    for _ in range(3):
        noted(census, "shop.tier", "gold", "silver")
        await keys.add(census.take(), LATER)
    assert await keys.hide(PROJECT, "attr.shop.tier", LATER)
    noted(census, "shop.tier", "gold", "silver")
    await keys.add(census.take(), LATER)
    states = await keys.states()
    assert (states.promoted, states.hidden) == ({}, {(PROJECT, "attr.shop.tier")})


async def test_so_many_keys_are_fields_at_most(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribute_keys, "MOST_KEPT", MOST_KEYS + 2)
    keys, census = AttributeKeys(store), KeyCensus()
    for _ in range(3):
        for number in range(PROMOTED_AFTER):
            said = "gold" if number % 2 else "silver"
            census.note(PROJECT, wire({f"shop.k{n:02}": said for n in range(MOST_KEYS + 5)}))
        await keys.add(census.take(), LATER)
    promoted = (await keys.states()).promoted[PROJECT]
    assert len(promoted) == MOST_KEYS
    assert len(await fetch(store, "select from attribute_key")) == MOST_KEYS + 2
    more = await keys.promote(PROJECT, f"attr.shop.k{MOST_KEYS:02}", LATER)
    assert more == f"There are {MOST_KEYS} fields already; hide one of them first."


async def test_a_writer_waits_for_whoever_hides_the_field(store: Database) -> None:
    keys = AttributeKeys(store)
    hidden = trio.Event()

    async def hide(connection: Connection) -> None:
        await attribute_keys._hide(connection, PROJECT, "environment", LATER)
        hidden.set()
        # Until the writer stands before the lock.
        while not await connection.fetchval("select exists (select from pg_locks where not granted)"):
            await connection.execute("select pg_sleep(0.01)")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run, hide)
        await hidden.wait()
        nursery.start_soon(store_of(store).write, shop(1, "prod"))
    assert (await keys.states()).hidden == {(PROJECT, "environment")}
    assert await values(store) == {"service": {"shop"}}


async def test_what_an_agent_is_called_stands_in_no_path_once_it_is_hidden(store: Database) -> None:
    await ProjectStore(store).make_default()
    spans, keys = store_of(store), AttributeKeys(store)
    said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "falcon"}

    def turn(number: int) -> list[StoredSpan]:
        agent = one(1, trace_id=bytes([number]) * 16, attributes=said)
        return rows(agent, one(2, parent=1, trace_id=bytes([number]) * 16, attributes=CHAT))

    await spans.write(turn(1))
    assert (await values(store))["agent_path"] == {"falcon"}
    assert await keys.hide(PROJECT, "agent", LATER)
    assert await keys.hide(PROJECT, "agent_path", LATER)
    assert await keys.promote(PROJECT, "agent_path", LATER) is None
    spans.codes.adopt((await keys.states()).hidden)
    await spans.write(turn(2))
    assert not await fetch(store, "select from attribute_value where value = 'falcon'")


async def test_what_is_being_built_of_a_field_is_gone_once_it_is_hidden(store: Database) -> None:
    await ProjectStore(store).make_default()
    await store_of(store).write(shop(1, "prod"))
    building = trio.Event()

    async def build(connection: Connection) -> None:
        await lock_builder(connection, PROJECT)
        building.set()
        # Until whoever hides it stands before the lock.
        while not await connection.fetchval("select exists (select from pg_locks where not granted)"):
            await connection.execute("select pg_sleep(0.01)")
        await connection.execute(
            "insert into trace_cube (project_id, hour, began, part, field, value, n, failed, held)"
            " values ($1, $2, $2, 0, 'environment', 'prod', 1, 0, '1')",
            *(PROJECT, NOW),
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run, build)
        await building.wait()
        assert await AttributeKeys(store).hide(PROJECT, "environment", LATER)
    assert not await fetch(store, "select from trace_cube where field = 'environment'")


async def test_what_a_process_remembers_is_bounded(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribute_codes, "_REMEMBERED_VALUES", 4)
    monkeypatch.setattr(attribute_codes, "_REMEMBERED_TOGETHER", 2)
    codes = AttributeCodes(store)
    for number in range(8):
        spans = shop(number + 1, f"env {number}")
        await codes.encode(spans)
        assert len(spans[0].row.facets or "") == 2
        assert len(codes._codes) <= 4
        assert len(codes._together) <= 2
