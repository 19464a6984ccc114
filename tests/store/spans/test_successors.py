"""A server that takes over may lack the last rows: what a process remembers of them is not trusted there."""

from __future__ import annotations

import pytest

from svc.store.postgres.database import Database
from tests.store.spans.test_attributes import values
from tests.store.spans.test_writing import fetch, one, payloads, rows, store_of

TEXT = "what only this test says " * 20


async def lose(store: Database) -> None:
    """What an asynchronous standby never got."""
    spans = ("span", "span_message", "span_payload", "trace", "call_site")
    for table in (*spans, "attribute_value", "attribute_counter"):
        await fetch(store, f"delete from {table}")


async def test_what_a_successor_lacks_is_stored_there_again(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = store_of(store)
    attributes = {"input.value": TEXT, "env": "north"}
    await spans.write(rows(one(1, attributes=attributes)))
    # Its text is one that this process remembers from now on.
    await spans.write(rows(one(2, attributes=attributes)))
    await lose(store)
    monkeypatch.setattr(store._servers, "changes", 1)
    last = one(3, attributes=attributes)
    await spans.write(rows(last))
    (whole,) = (await payloads(store)).values()
    assert whole.raw == last.SerializeToString()
    assert len(await fetch(store, "select from call_site")) == 1
    assert (await values(store))["environment"] == {"north"}
