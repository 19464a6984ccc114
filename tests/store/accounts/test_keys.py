"""API keys in the store: hashed, looked up by prefix, announced when they change."""

from __future__ import annotations

import argparse
import re
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from actors.keys import Grant, Verdicts
from protocol.operator import OperatorError
from protocol.storage import Eviction
from protocol.tokens import is_token, lookup_prefix
from svc.commands.target import named_project
from svc.store.accounts.keys import AlreadyRevoked, Minted, NoSuchKey, PostgresKeyStore, matches
from svc.store.accounts.projects import Project, ProjectStore
from svc.store.postgres.database import Connection, Database


@pytest.fixture
async def project(store: Database) -> Project:
    made = await ProjectStore(store).make_default()
    assert made is not None
    return made


async def test_the_default_project_is_made_once(store: Database) -> None:
    projects = ProjectStore(store)
    assert await projects.make_default() == await projects.make_default()
    assert await projects.find("default", "nowhere") is None


async def test_a_default_project_that_was_deleted_does_not_come_back_by_itself(
    store: Database, project: Project
) -> None:
    projects, org = ProjectStore(store), await ProjectStore(store).the_org()
    assert await projects.delete(project.id, actor="ann") is not None
    assert await projects.make_default() is None
    arguments = argparse.Namespace(org="default", project="default")
    with pytest.raises(OperatorError, match="default/default was deleted; choose another one with --project"):
        await named_project(SimpleNamespace(database=store), arguments)  # type: ignore[arg-type]
    assert await projects.list(org.id) == []
    # Somebody makes one of that name: it is the default one again.
    made = await projects.create(org.id, "default", "Default", actor="ann")
    assert made is not None
    found = await projects.make_default()
    assert found is not None
    assert found.id == made.id != project.id


async def test_only_a_bcrypt_hash_at_cost_10_and_the_prefix_are_stored(
    store: Database, project: Project
) -> None:
    minted = await PostgresKeyStore(store).create(project.id, "n", "write", actor="tests")
    assert is_token(minted.plaintext)
    assert re.fullmatch(r"svc_w_[A-Za-z0-9_-]{22}", minted.plaintext)
    assert minted.plaintext not in repr(minted)

    async def work(connection: Connection) -> Any:
        return await connection.fetchrow("select * from api_key")

    row = await store.run(work)
    assert row["secret_hash"].startswith(b"$2b$10$")
    assert row["token_prefix"] == minted.plaintext[:14] == lookup_prefix(minted.plaintext)
    assert matches(minted.plaintext, row["secret_hash"])
    assert minted.plaintext not in str(dict(row))


async def test_a_rotated_key_keeps_name_and_scope_and_loses_its_old_secret(
    store: Database, project: Project
) -> None:
    keys = PostgresKeyStore(store)
    first = await keys.create(project.id, "n", "query", actor="tests")
    second = await keys.rotate(project.id, first.key.id, actor="tests")
    assert isinstance(second, Minted)
    assert (second.key.id, second.key.name, second.key.scope) == (first.key.id, "n", "query")
    assert await keys.keys_behind(lookup_prefix(first.plaintext)) == []
    (record,) = await keys.keys_behind(lookup_prefix(second.plaintext))
    assert matches(second.plaintext, record.secret_hash)
    assert record.secret_hash.decode() not in repr(record)


async def test_a_revoked_key_is_known_as_revoked_and_cannot_be_rotated(
    store: Database, project: Project
) -> None:
    keys = PostgresKeyStore(store)
    minted = await keys.create(project.id, "n", "admin", actor="tests")
    await keys.revoke(project.id, minted.key.id, actor="tests")
    (record,) = await keys.keys_behind(lookup_prefix(minted.plaintext))
    assert record.revoked
    assert matches(minted.plaintext, record.secret_hash)
    assert await keys.rotate(project.id, minted.key.id, actor="tests") == AlreadyRevoked()
    (shown,) = await keys.list(project.id)
    assert shown.state == "revoked"


async def test_revoking_twice_keeps_the_first_time(store: Database, project: Project) -> None:
    keys = PostgresKeyStore(store)
    minted = await keys.create(project.id, "n", "admin", actor="tests")
    first = await keys.revoke(project.id, minted.key.id, actor="tests")
    assert first == await keys.revoke(project.id, minted.key.id, actor="tests")


@pytest.mark.parametrize("key_id", ["not-a-uuid", "6a204bd8-9f4f-4a33-8b8f-0f0f0f0f0f0f", ""])
async def test_an_unknown_key_is_not_found(store: Database, project: Project, key_id: str) -> None:
    keys = PostgresKeyStore(store)
    assert await keys.revoke(project.id, key_id, actor="tests") == NoSuchKey()
    assert await keys.rotate(project.id, key_id, actor="tests") == NoSuchKey()


async def test_a_key_of_another_project_is_not_found(store: Database, project: Project) -> None:
    keys = PostgresKeyStore(store)
    minted = await keys.create(project.id, "n", "admin", actor="tests")
    assert await keys.revoke(project.id + 1, minted.key.id, actor="tests") == NoSuchKey()


async def test_the_keys_of_a_deleted_project_are_known_as_revoked(store: Database, project: Project) -> None:
    keys = PostgresKeyStore(store)
    minted = await keys.create(project.id, "n", "admin", actor="tests")

    async def work(connection: Connection) -> None:
        await connection.execute("update project set deleted_at = now()")

    await store.run(work)
    (record,) = await keys.keys_behind(lookup_prefix(minted.plaintext))
    assert record.revoked
    assert matches(minted.plaintext, record.secret_hash)


@pytest.mark.parametrize("change", ["revoke", "rotate"])
@pytest.mark.parametrize(
    "spell",
    [
        str.upper,
        lambda key_id: f"{{{key_id}}}",
        lambda key_id: key_id.replace("-", ""),
        lambda key_id: f"urn:uuid:{key_id}",
    ],
    ids=["upper case", "braces", "no dashes", "urn"],
)
async def test_however_an_id_is_spelled_every_copy_forgets_the_key_of_it(
    store: Database, project: Project, change: str, spell: Callable[[str], str]
) -> None:
    keys = PostgresKeyStore(store)
    minted = await keys.create(project.id, "n", "write", actor="tests")
    verdicts = Verdicts()
    verdicts.put(minted.plaintext, Grant(minted.key.id, project.id, "write"))
    with trio.fail_after(60):
        async with keys.evictions() as notices:
            await getattr(keys, change)(project.id, spell(minted.key.id), actor="tests")
            verdicts.evict(await anext(notices))
    assert verdicts.find(minted.plaintext) is None


async def test_a_revocation_is_heard_by_every_listener(store: Database, project: Project) -> None:
    keys = PostgresKeyStore(store)
    minted = await keys.create(project.id, "n", "write", actor="tests")
    heard: list[Eviction] = []

    async def listen(task_status: trio.TaskStatus[None]) -> None:
        async with keys.evictions() as notices:
            task_status.started()
            async for notice in notices:
                heard.append(notice)
                return

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(listen)
            await nursery.start(listen)
            await keys.revoke(project.id, minted.key.id, actor="tests")
    assert heard == [Eviction(key_id=minted.key.id)] * 2


async def test_no_more_secrets_are_hashed_at_once_than_the_service_lends_hashers(
    store: Database, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = PostgresKeyStore(store, trio.CapacityLimiter(2))
    at_work, most = 0, 0
    gate = threading.Barrier(2)

    def hash_slowly(_token: str) -> bytes:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        # Two hash at a time, or this would wait for ever.
        gate.wait(10)
        at_work -= 1
        return b"hash"

    monkeypatch.setattr("svc.store.accounts.keys.secret_hash_of", hash_slowly)

    async def mint() -> None:
        await keys.create(project.id, "n", "write", actor="tests")

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(mint)
    assert most == 2
    assert keys.hashers.borrowed_tokens == 0
