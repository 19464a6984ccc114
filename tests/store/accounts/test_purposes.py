"""Keys that were made for a purpose: nobody's anywhere else, unlisted, over at their moment, swept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from actors.keys import Grant, WasRevoked
from protocol.agents import PURPOSES
from protocol.storage import Eviction
from svc.runtime.clock import now
from svc.store.accounts.keys import Minted, NoSuchKey, PostgresKeyStore
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from tests.front.people import PROJECT, Replica, replica
from tests.store.detection.detecting import execute
from tests.store.spans.test_writing import fetch

PURPOSE = PURPOSES["triage"]


@pytest.fixture
async def api(store: Database) -> AsyncIterator[Replica]:
    async with replica(store) as found:
        yield found


async def minted(api: Replica, lives_s: float = 60.0) -> Minted:
    project = await ProjectStore(api.database).make_default()
    assert project is not None
    return await PostgresKeyStore(api.database).create(
        project.id,
        "run",
        "admin",
        actor="system",
        purpose=PURPOSE,
        expires_at=now() + timedelta(seconds=lives_s),
    )


async def test_a_key_with_a_purpose_opens_only_what_names_it(api: Replica) -> None:
    made, keys = await minted(api), api.means.keys
    assert await keys.verify(made.plaintext) is None
    assert await keys.verify(made.plaintext, purposes={"another"}) is None
    grant = await keys.verify(made.plaintext, purposes={PURPOSE})
    assert isinstance(grant, Grant)
    assert (grant.purpose, grant.project_id) == (PURPOSE, 1)
    holder = api.browser(key=made.plaintext, origin=None)
    for path in ("/api-keys", "/cases", "/retention"):
        assert (await holder.get(PROJECT + path)).status == 401


async def test_people_neither_see_nor_rotate_nor_revoke_it(api: Replica) -> None:
    owner, made = await api.owner(), await minted(api)
    assert made.key.id not in {key["id"] for key in (await owner.get(PROJECT + "/api-keys")).data}
    assert (await owner.post(f"{PROJECT}/api-keys/{made.key.id}/rotate")).status == 404
    assert (await owner.delete(f"{PROJECT}/api-keys/{made.key.id}")).status == 404
    key_store = PostgresKeyStore(api.database)
    assert isinstance(await key_store.revoke(1, made.key.id, actor="system"), NoSuchKey)
    assert not isinstance(await key_store.revoke(1, made.key.id, actor="system", purpose=PURPOSE), NoSuchKey)
    api.means.keys.evict(Eviction(key_id=made.key.id))
    assert isinstance(await api.means.keys.verify(made.plaintext, purposes={PURPOSE}), WasRevoked)


async def test_its_time_is_over_at_its_moment_and_the_sweep_revokes_it(api: Replica) -> None:
    over, living = await minted(api, lives_s=-1), await minted(api)
    assert isinstance(await api.means.keys.verify(over.plaintext, purposes={PURPOSE}), WasRevoked)
    assert await PostgresKeyStore(api.database).sweep() == 1
    assert await PostgresKeyStore(api.database).sweep() == 0
    (row,) = await fetch(api.database, "select id::text from api_key where revoked_at is not null")
    assert row["id"] == over.key.id
    await execute(
        api.database, "update api_key set expires_at = now() - interval '8 days' where purpose <> ''"
    )
    await PostgresKeyStore(api.database).sweep()
    assert await fetch(api.database, "select id from api_key where purpose is not null") == []
    audited = await fetch(api.database, "select action from audit_row where subject_kind = 'key' order by id")
    assert [row["action"] for row in audited] == ["key.create", "key.create", "key.revoke", "key.revoke"]
    assert living.key.revoked_at is None
