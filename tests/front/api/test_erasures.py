"""Erasing over REST: who may, what the answers say and do not say, and that no other project hears of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from protocol.refusals import NO_SUCH_ERASURE, TOO_MANY_ERASURES
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.retention import erasures
from svc.store.retention.erasing import Erasing
from tests.front.people import PROJECT, Browser, Replica, replica
from tests.store.spans.test_writing import TRACE, fetch, one, rows, store_of

USER = "mara@example.com"


@pytest.fixture
async def here(store: Database) -> AsyncIterator[Replica]:
    async with replica(store) as found:
        await ProjectStore(store).make_default()
        attributes = {"session.id": "s/1", "user.id": USER, "gen_ai.operation.name": "chat"}
        await store_of(store).write(rows(one(1, attributes=attributes)))
        yield found


@pytest.fixture
async def owner(here: Replica) -> Browser:
    return await here.owner()


async def work_off(store: Database) -> None:
    erasing = Erasing(store)
    for project_id in await erasing.projects():
        while await erasing.step(project_id) is not None:
            pass


async def test_a_users_data_is_erased_and_the_answers_never_say_whose(
    owner: Browser, store: Database
) -> None:
    answer = await owner.delete(f"{PROJECT}/users/{USER}")
    assert (answer.status, answer.data["kind"], answer.data["finished_at"]) == (202, "user", None)
    await work_off(store)
    shown = (await owner.get(f"{PROJECT}/erasures/{answer.data['id']}")).data
    assert shown["finished_at"] is not None
    assert (shown["counts"]["traces"], shown["counts"]["spans"]) == (1, 1)
    assert await fetch(store, "select from span") == []
    listed = (await owner.get(f"{PROJECT}/erasures")).data
    audit = (await owner.get(f"{PROJECT}/api-keys/audit")).data
    assert audit["rows"][0]["action"] == "data.erase"
    assert "mara" not in f"{answer.data} {shown} {listed} {audit}"


async def test_a_trace_and_a_session_are_erased(owner: Browser, store: Database) -> None:
    assert (await owner.delete(f"{PROJECT}/traces/{TRACE.hex().upper()}")).status == 202
    # A path cannot hold every id.
    assert (await owner.post(f"{PROJECT}/erasures", {"kind": "session", "id": "s/1"})).status == 202
    assert (await owner.delete(f"{PROJECT}/sessions/another")).status == 202
    await work_off(store)
    assert await fetch(store, "select from trace") == []
    assert await fetch(store, "select from session") == []


@pytest.mark.parametrize("trace_id", ["1", "g" * 32, TRACE.hex() + "00"])
async def test_what_is_no_id_of_a_trace_is_400(owner: Browser, trace_id: str) -> None:
    assert (await owner.delete(f"{PROJECT}/traces/{trace_id}")).status == 400


async def test_a_viewer_may_look_and_not_erase(here: Replica, owner: Browser, store: Database) -> None:
    viewer = await here.member("vera@example.com", "viewer", owner)
    for path in (f"traces/{TRACE.hex()}", "sessions/s", "users/u"):
        assert (await viewer.delete(f"{PROJECT}/{path}")).status == 403
    assert (await viewer.post(f"{PROJECT}/erasures", {"kind": "user", "id": "u"})).status == 403
    assert (await viewer.get(f"{PROJECT}/erasures")).data == {"erasures": []}
    assert await fetch(store, "select from erasure") == []


async def test_an_erasure_that_is_none_is_404(owner: Browser) -> None:
    for name in ("none", "00000000-0000-0000-0000-000000000000"):
        answer = await owner.get(f"{PROJECT}/erasures/{name}")
        assert answer.refused == (404, NO_SUCH_ERASURE.code, NO_SUCH_ERASURE.message)


async def test_so_many_may_wait(owner: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasures, "MOST_WAITING", 1)
    assert (await owner.delete(f"{PROJECT}/users/one")).status == 202
    answer = await owner.delete(f"{PROJECT}/users/two")
    assert answer.refused == (429, TOO_MANY_ERASURES.code, TOO_MANY_ERASURES.message)
