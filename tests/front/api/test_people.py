"""Organizations, projects, members, invitations and keys over REST: who may do what, and what is told."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio

from actors.guesses import GUESSES_OF_PLACE
from actors.keys import Grant, WasRevoked
from protocol.storage import Eviction
from protocol.tokens import is_token
from svc.front.api.accounts import keys, members, orgs, projects
from svc.store.postgres.database import Database
from tests.front.api.test_accounts import REFUSED, UNAUTHORIZED, fetch
from tests.front.people import ORG, PROJECT, Replica, replica

KEYS, TOKENS = PROJECT + "/api-keys", PROJECT + "/mcp-tokens"
NO_SUCH_PROJECT = (404, "NOT_FOUND", "no such project")
NO_SUCH_ORG = (404, "NOT_FOUND", "no such organization")
KEY_NOT_FOUND = (404, "NOT_FOUND", "key not found")
UNKNOWN_ID = "00000000-0000-0000-0000-000000000000"


# --- roles ------------------------------------------------------------------------------------------------

#: Route, body, and the least role that may; each refuses the roles below.
ASKS: list[tuple[str, str, Any, str]] = [
    ("GET", ORG, None, "viewer"),
    ("PATCH", ORG, {"name": "A"}, "admin"),
    ("GET", ORG + "/signup-policy", None, "admin"),
    ("PUT", ORG + "/signup-policy", {"mode": "open", "domains": []}, "admin"),
    ("GET", ORG + "/members", None, "admin"),
    ("POST", ORG + "/members", {"email": "x@example.org", "role": "viewer"}, "admin"),
    ("PATCH", ORG + f"/members/{UNKNOWN_ID}", {"role": "viewer"}, "admin"),
    ("DELETE", ORG + f"/members/{UNKNOWN_ID}", None, "admin"),
    ("GET", ORG + "/invitations", None, "admin"),
    ("POST", ORG + "/invitations", {"email": "x@example.org"}, "admin"),
    ("DELETE", ORG + f"/invitations/{UNKNOWN_ID}", None, "admin"),
    ("GET", ORG + "/audit", None, "admin"),
    ("GET", ORG + "/projects", None, "viewer"),
    ("POST", ORG + "/projects", {"name": "P"}, "member"),
    ("GET", PROJECT, None, "viewer"),
    ("PATCH", PROJECT, {"name": "P"}, "member"),
    ("GET", KEYS, None, "viewer"),
    ("POST", KEYS, {"name": "k", "scope": "write"}, "member"),
    ("POST", KEYS + f"/{UNKNOWN_ID}/rotate", None, "member"),
    ("DELETE", KEYS + f"/{UNKNOWN_ID}", None, "member"),
    ("GET", KEYS + "/audit", None, "viewer"),
    ("GET", TOKENS, None, "viewer"),
    ("POST", TOKENS, {"name": "t"}, "member"),
    ("DELETE", TOKENS + f"/{UNKNOWN_ID}", None, "member"),
    ("DELETE", PROJECT, None, "admin"),
]
RANKS = ["viewer", "member", "admin", "owner"]


async def test_every_route_asks_for_its_role(api: Replica) -> None:
    owner = await api.owner()
    people = {
        role: await api.member(f"{role}@example.org", role, owner) for role in ("viewer", "member", "admin")
    }
    for method, path, body, least in ASKS:
        for role, person in people.items():
            answer = await person.call(method, path, body)
            if RANKS.index(role) < RANKS.index(least):
                assert answer.refused[:2] == (403, "FORBIDDEN"), (method, path, role, answer.body)
            else:
                assert answer.status not in (401, 403), (method, path, role, answer.body)
            if answer.status == 202:
                # The project is deleted now, and the table is through.
                assert path == PROJECT


def test_every_route_of_ours_is_in_this_test() -> None:
    asked = {(method, re.sub(UNKNOWN_ID, "*", path)) for method, path, _, _ in ASKS}
    for route in (*orgs.ROUTES, *members.ROUTES, *projects.ROUTES, *keys.ROUTES):
        path = route.path.replace("{orgSlug}", "default").replace("{projectSlug}", "default")
        assert (route.method, re.sub(r"{\w+}", "*", path)) in asked


async def test_somebody_who_does_not_belong_sees_nothing(api: Replica) -> None:
    owner = await api.owner()
    member = await api.member("bob@example.org", "member", owner)
    (_, bob) = (await owner.get(ORG + "/members")).data
    assert (await owner.delete(ORG + f"/members/{bob['id']}")).data["removed"] is True
    assert (await member.get(ORG)).refused == NO_SUCH_ORG
    assert (await member.get(KEYS)).refused == NO_SUCH_ORG
    assert (await member.get("/auth/me")).data["organizations"] == []
    added = await owner.post(ORG + "/members", {"email": "BOB@example.org", "role": "viewer"})
    assert (added.status, added.data["role"]) == (201, "viewer")
    assert (await member.get(ORG)).data["role"] == "viewer"


# --- members and invitations ------------------------------------------------------------------------------


async def test_there_is_always_an_owner(api: Replica) -> None:
    owner = await api.owner()
    (me,) = (await owner.get(ORG + "/members")).data
    mine = ORG + f"/members/{me['id']}"
    last = (409, "CONFLICT", "the last owner cannot leave; make another owner first")
    assert (await owner.delete(mine)).refused == last
    assert (await owner.patch(mine, {"role": "admin"})).refused == last
    await api.member("eve@example.org", "owner", owner)
    assert (await owner.patch(mine, {"role": "admin"})).data["role"] == "admin"


async def test_two_owners_who_leave_at_once_leave_one(api: Replica) -> None:
    owner = await api.owner()
    other = await api.member("eve@example.org", "owner", owner)
    ids = [row["id"] for row in (await owner.get(ORG + "/members")).data]
    answers: list[int] = []

    async def leave(browser: Any, member_id: str) -> None:
        answers.append((await browser.delete(ORG + f"/members/{member_id}")).status)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave, owner, ids[0])
        nursery.start_soon(leave, other, ids[1])
    assert sorted(answers) == [200, 409]


async def test_anybody_may_leave(api: Replica) -> None:
    owner = await api.owner()
    viewer = await api.member("bob@example.org", "viewer", owner)
    me = (await viewer.get("/auth/me")).data["account"]["id"]
    assert (await viewer.delete(ORG + f"/members/{me}")).data["removed"] is True
    assert (await viewer.get(ORG)).refused == NO_SUCH_ORG


async def test_an_admin_does_not_deal_in_owners(api: Replica) -> None:
    owner = await api.owner()
    admin = await api.member("ann@example.org", "admin", owner)
    ids = {row["role"]: row["id"] for row in (await owner.get(ORG + "/members")).data}
    only = (403, "FORBIDDEN", "only an owner may make, change or remove an owner")
    assert (await admin.patch(ORG + f"/members/{ids['admin']}", {"role": "owner"})).refused == only
    assert (await admin.patch(ORG + f"/members/{ids['owner']}", {"role": "viewer"})).refused == only
    assert (await admin.delete(ORG + f"/members/{ids['owner']}")).refused == only
    assert (
        await admin.post(ORG + "/invitations", {"email": "x@example.org", "role": "owner"})
    ).refused == only


@pytest.mark.parametrize("policy", [{"mode": "invite"}, {"mode": "domain", "domains": ["other.org"]}])
async def test_an_invitation_admits_its_address_in_every_mode_once(
    api: Replica, policy: dict[str, Any]
) -> None:
    owner = await api.owner()
    await owner.put(ORG + "/signup-policy", policy)
    assert (await api.browser().sign_up("ann@example.org")).refused == REFUSED
    invitation = {"email": "Ann@Example.org", "role": "admin"}
    made = await owner.post(ORG + "/invitations", invitation)
    assert made.status == 201
    assert (await owner.post(ORG + "/invitations", invitation)).status == 409
    answer = await api.browser().sign_up("ann@example.org", invitation=made.data["secret"])
    assert answer.data["organizations"][0]["role"] == "admin"
    assert (await owner.get(ORG + "/invitations")).data == []
    assert (await owner.post(ORG + "/invitations", invitation)).refused[0] == 409


async def test_a_withdrawn_invitation_admits_nobody(api: Replica) -> None:
    owner = await api.owner()
    await owner.put(ORG + "/signup-policy", {"mode": "invite"})
    made = (await owner.post(ORG + "/invitations", {"email": "ann@example.org"})).data
    assert made["role"] == "member"
    assert (await owner.delete(ORG + f"/invitations/{made['id']}")).data == {"removed": True}
    assert (await owner.delete(ORG + f"/invitations/{made['id']}")).status == 404
    secret = made["secret"]
    assert (await api.browser().sign_up("ann@example.org", invitation=secret)).refused == REFUSED


# --- projects ---------------------------------------------------------------------------------------------


async def test_a_project_is_made_named_and_found(api: Replica) -> None:
    owner = await api.owner()
    made = await owner.post(ORG + "/projects", {"name": "Crème & Brûlée!"})
    assert (made.status, made.data["slug"]) == (201, "creme-brulee")
    assert (await owner.post(ORG + "/projects", {"name": "Other", "slug": "creme-brulee"})).status == 409
    for slug in ("", "A", "a b", "-a", "a/b", "ä", "x" * 51):
        assert (await owner.post(ORG + "/projects", {"name": "n", "slug": slug})).status == 400
    assert (await owner.patch(ORG + "/projects/creme-brulee", {"name": "Feet"})).data["name"] == "Feet"
    listed = (await owner.get(ORG + "/projects")).data
    assert [project["slug"] for project in listed] == ["default", "creme-brulee"]


async def test_deleting_a_project_revokes_its_keys_at_once_everywhere(store: Database) -> None:
    async with replica(store) as here, replica(store) as there:
        owner = await here.owner()
        tokens = [(await here.token(scope)) for scope in ("write", "query", "admin")]
        for token in tokens:
            assert isinstance(await here.means.keys.verify(token), Grant)
            assert isinstance(await there.means.keys.verify(token), Grant)
        changed = there.verdicts.changed
        deleted = await owner.delete(PROJECT)
        assert (deleted.status, deleted.data) == (202, {"deleted": True, "keys_revoked": 3})
        assert [await here.means.keys.verify(token) for token in tokens] == [WasRevoked()] * 3
        with trio.fail_after(60):
            await changed.wait()
        assert [await there.means.keys.verify(token) for token in tokens] == [WasRevoked()] * 3
        assert (await owner.get(PROJECT)).refused == NO_SUCH_PROJECT
        assert (await owner.delete(PROJECT)).refused == NO_SUCH_PROJECT
        rows = await fetch(store, "select action from audit_row order by id desc limit 4")
        assert [row["action"] for row in rows] == ["project.delete", *["key.revoke"] * 3]
        # The slug is free again, and the new project has nothing of the old one.
        assert (await owner.post(ORG + "/projects", {"name": "Default"})).data["slug"] == "default"
        assert (await owner.get(KEYS)).data == []


# --- keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["write", "query", "admin"])
async def test_the_plaintext_of_a_key_is_shown_once(api: Replica, scope: str) -> None:
    owner = await api.owner()
    made = await owner.post(KEYS, {"name": " mine ", "scope": scope})
    assert made.status == 201
    key, token = made.data["key"], made.data["plaintext"]
    assert is_token(token)
    assert token.startswith(f"svc_{scope[0]}_")
    assert key == {
        "id": key["id"],
        "name": "mine",
        "scope": scope,
        "token_prefix": token[:14],
        "created_at": key["created_at"],
        "last_used_at": None,
        "revoked_at": None,
        "state": "active",
        "minted_by": "owner@example.org",
    }
    for path in (KEYS, KEYS + "/audit", ORG + "/audit", TOKENS):
        answer = await owner.get(path)
        assert token not in str(answer.body)
        assert token[14:] not in str(answer.body)
    assert (await owner.get(KEYS)).data == [key]


@pytest.mark.parametrize("scope", ["root", "", "Write", "{value}", "mcp"])
async def test_an_unknown_scope_is_named(api: Replica, scope: str) -> None:
    answer = await (await api.owner()).post(KEYS, {"name": "k", "scope": scope})
    assert answer.refused == (400, "BAD_REQUEST", f"unknown key scope '{scope}'")


async def test_a_blank_name_is_refused(api: Replica) -> None:
    owner = await api.owner()
    for path, body in ((KEYS, {"name": " ", "scope": "write"}), (TOKENS, {"name": "\t"})):
        assert (await owner.post(path, body)).refused == (400, "BAD_REQUEST", "name must not be blank")


async def test_a_rotated_key_has_another_secret_and_the_old_one_is_dead_at_once(api: Replica) -> None:
    owner = await api.owner()
    made = (await owner.post(KEYS, {"name": "k", "scope": "admin"})).data
    path = KEYS + "/" + made["key"]["id"]
    assert isinstance(await api.means.keys.verify(made["plaintext"]), Grant)
    rotated = (await owner.post(path + "/rotate")).data
    assert {**rotated["key"], "token_prefix": ""} == {**made["key"], "token_prefix": ""}
    assert await api.means.keys.verify(made["plaintext"]) is None
    assert isinstance(await api.means.keys.verify(rotated["plaintext"]), Grant)
    assert (await owner.delete(path)).data == {"revoked": True}
    assert await api.means.keys.verify(rotated["plaintext"]) == WasRevoked()
    assert (await owner.delete(path)).data == {"revoked": True}
    assert (await owner.post(path + "/rotate")).refused == (409, "CONFLICT", "cannot rotate a revoked key")
    assert [row["state"] for row in (await owner.get(KEYS)).data] == ["revoked"]


@pytest.mark.parametrize("key_id", [UNKNOWN_ID, "no-uuid", "%00"])
async def test_an_unknown_key_is_not_found(api: Replica, key_id: str) -> None:
    owner = await api.owner()
    assert (await owner.delete(KEYS + "/" + key_id)).refused == KEY_NOT_FOUND
    assert (await owner.delete(TOKENS + "/" + key_id)).refused == KEY_NOT_FOUND
    assert (await owner.post(KEYS + f"/{key_id}/rotate")).refused == KEY_NOT_FOUND


async def test_a_key_of_another_project_is_not_found(api: Replica) -> None:
    owner = await api.owner()
    await owner.post(ORG + "/projects", {"name": "Other"})
    made = (await owner.post(KEYS, {"name": "k", "scope": "write"})).data["key"]
    other = ORG + f"/projects/other/api-keys/{made['id']}"
    assert (await owner.delete(other)).refused == KEY_NOT_FOUND
    assert (await owner.post(other + "/rotate")).refused == KEY_NOT_FOUND


async def test_mcp_tokens_are_the_keys_of_scope_admin(api: Replica) -> None:
    owner = await api.owner()
    write = (await owner.post(KEYS, {"name": "w", "scope": "write"})).data["key"]
    made = await owner.post(TOKENS, {"name": "agent"})
    assert (made.status, made.data["token"]["scope"]) == (201, "admin")
    assert (await owner.get(TOKENS)).data == [made.data["token"]]
    assert (await owner.delete(TOKENS + "/" + write["id"])).refused == KEY_NOT_FOUND
    assert (await owner.delete(TOKENS + "/" + made.data["token"]["id"])).data == {"revoked": True}
    assert await api.means.keys.verify(made.data["plaintext"]) == WasRevoked()


async def test_no_bearer_key_mints_another(api: Replica) -> None:
    owner = await api.owner()
    for scope in ("write", "query", "admin"):
        bearer = api.browser(key=await api.token(scope), origin=None)
        minted = await bearer.post(KEYS, {"name": "k", "scope": "write"})
        assert minted.refused == (403, "FORBIDDEN", "API keys cannot mint new keys")
        tokens = await bearer.post(TOKENS, {"name": "t"})
        assert tokens.refused == (403, "FORBIDDEN", "MCP tokens cannot mint new tokens")
    assert len((await owner.get(KEYS)).data) == 3


async def test_last_used_is_shown(api: Replica) -> None:
    owner = await api.owner()
    made = (await owner.post(KEYS, {"name": "k", "scope": "query"})).data
    await api.means.keys.verify(made["plaintext"])
    from svc.runtime.clock import now
    from svc.store.accounts.keys import PostgresKeyStore

    await PostgresKeyStore(api.database).note_used(dict.fromkeys(api.verdicts.used, now()))
    (row,) = (await owner.get(KEYS)).data
    assert row["last_used_at"].endswith("Z")


# --- keys on REST: scope x route --------------------------------------------------------------------------

#: What each scope may do with a key of its own project: read, write, and nothing of another's.
READS = [ORG, ORG + "/projects", PROJECT, KEYS, KEYS + "/audit", TOKENS]
WRITES = [
    ("PATCH", PROJECT, {"name": "P"}),
    ("POST", KEYS + f"/{UNKNOWN_ID}/rotate", None),
    ("DELETE", KEYS + f"/{UNKNOWN_ID}", None),
    ("DELETE", TOKENS + f"/{UNKNOWN_ID}", None),
]
ADMINISTERS = [
    ("PATCH", ORG, {"name": "A"}),
    ("PUT", ORG + "/signup-policy", {"mode": "open"}),
    ("POST", ORG + "/projects", {"name": "P"}),
    ("DELETE", PROJECT, None),
    ("POST", ORG + "/invitations", {"email": "x@example.org"}),
]


@pytest.mark.parametrize("scope", ["write", "query", "admin"])
async def test_a_key_acts_as_member_within_its_scope(api: Replica, scope: str) -> None:
    owner = await api.owner()
    await owner.post(ORG + "/projects", {"name": "Other"})
    bearer = api.browser(key=await api.token(scope), origin=None)
    for path in READS:
        assert (await bearer.get(path)).status == (403 if scope == "write" else 200), path
    for method, path, body in WRITES:
        answer = await bearer.call(method, path, body)
        assert (answer.status == 403) is (scope != "admin"), (path, answer.body)
    for method, path, body in ADMINISTERS:
        assert (await bearer.call(method, path, body)).status == 403, path
    for path in (ORG + "/members", ORG + "/invitations", ORG + "/audit", ORG + "/signup-policy"):
        assert (await bearer.get(path)).status == 403, path
    other = ORG + "/projects/other"
    expected = 403 if scope == "write" else 404
    assert (await bearer.get(other)).status == expected
    assert (await bearer.get(other + "/api-keys")).status == expected
    assert (await bearer.get("/auth/me")).refused == UNAUTHORIZED
    if scope != "write":
        assert [row["slug"] for row in (await bearer.get(ORG + "/projects")).data] == ["default"]


async def test_the_cookie_is_preferred_and_the_key_is_the_fallback(api: Replica) -> None:
    owner = await api.owner()
    owner.key = await api.token("write")
    assert (await owner.get(KEYS)).status == 200
    assert (await owner.post(KEYS, {"name": "k", "scope": "query"})).status == 201
    owner.origin = None
    assert (await owner.post(KEYS, {"name": "k", "scope": "query"})).status == 403
    # A cookie that is worth nothing leaves the key.
    stale = api.browser(cookie="x" * 80, key=await api.token("query"), origin=None)
    assert (await stale.get(KEYS)).status == 200


@pytest.mark.parametrize("how", ["none", "wrong", "malformed", "revoked", "rotated", "deleted"])
async def test_a_key_that_is_not_living_is_unauthorized(api: Replica, how: str) -> None:
    owner = await api.owner()
    minted = await api.minted("admin")
    path = KEYS + "/" + minted.key.id
    token: str | None = minted.plaintext
    assert (await api.browser(key=token).get(KEYS)).status == 200
    match how:
        case "none":
            token = None
        case "wrong":
            token = minted.plaintext[:-1] + ("A" if minted.plaintext[-1] != "A" else "Q")
        case "malformed":
            token = "svc_a_short"
        case "revoked":
            await owner.delete(path)
        case "rotated":
            await owner.post(path + "/rotate")
        case "deleted":
            await owner.delete(PROJECT)
    assert (await api.browser(key=token, origin=None).get(KEYS)).refused == UNAUTHORIZED


async def test_a_revoked_key_is_refused_on_the_next_request_on_both_of_two_replicas(store: Database) -> None:
    async with replica(store) as here, replica(store) as there:
        owner = await here.owner()
        minted = await here.minted("query")
        programs = [found.browser(key=minted.plaintext, origin=None) for found in (here, there)]
        for program in programs:
            assert (await program.get(KEYS)).status == 200
        changed = there.verdicts.changed
        await owner.delete(KEYS + "/" + minted.key.id)
        assert (await programs[0].get(KEYS)).refused == UNAUTHORIZED
        with trio.fail_after(60):
            await changed.wait()
        assert (await programs[1].get(KEYS)).refused == UNAUTHORIZED


async def test_a_hundred_wrong_tokens_with_a_real_prefix_cost_few_hashes(
    api: Replica,
) -> None:
    minted = await api.minted("query")
    prefix = minted.plaintext[:14]
    wrong = [prefix + f"{number:014d}" for number in range(100)]
    for token in wrong:
        assert not isinstance(await api.means.keys.verify(token), Grant)
    assert len(api.hashed) <= GUESSES_OF_PLACE
    # Their place has run dry, and no other; once the true token was seen, no wrong one is hashed at all.
    assert isinstance(await api.means.keys.verify(minted.plaintext, place="198.51.100.1"), Grant)
    api.hashed.clear()
    api.verdicts.evict(Eviction())
    for token in wrong:
        assert await api.means.keys.verify(token) is None
    assert api.hashed == []


# --- the audit --------------------------------------------------------------------------------------------


async def test_the_audit_says_who_did_what_and_pages(api: Replica) -> None:
    owner = await api.owner()
    made = (await owner.post(KEYS, {"name": "k", "scope": "write"})).data["key"]
    await owner.post(KEYS + f"/{made['id']}/rotate")
    await owner.delete(KEYS + f"/{made['id']}")
    page = (await owner.get(KEYS + "/audit")).data
    assert [row["action"] for row in page["rows"]] == ["key.revoke", "key.rotate", "key.create"]
    assert {(row["actor"], row["subject_kind"], row["subject_id"]) for row in page["rows"]} == {
        ("owner@example.org", "key", made["id"])
    }
    assert page["next_cursor"] is None
    await fetch(
        api.database,
        "insert into audit_row (org_id, project_id, action, actor, subject_kind, subject_id, details)"
        " select org_id, project_id, action, actor, subject_kind, subject_id, details"
        " from audit_row, generate_series(1, 100) where project_id is not null",
    )
    first = (await owner.get(KEYS + "/audit")).data
    second = (await owner.get(KEYS + "/audit?cursor=" + first["next_cursor"])).data
    assert (len(first["rows"]), len(second["rows"]), second["next_cursor"]) == (200, 103, None)
    ids = [row["id"] for row in first["rows"] + second["rows"]]
    assert ids == sorted(ids, reverse=True)
    assert (await owner.get(KEYS + "/audit?cursor=nonsense")).data == first
    assert (await owner.get(KEYS + "/audit?page=2")).status == 400
    everything = (await owner.get(ORG + "/audit")).data["rows"]
    assert len(everything) == 200


@pytest.mark.errors_expected
async def test_an_audit_row_that_cannot_be_written_stops_its_cause(api: Replica) -> None:
    owner = await api.owner()
    minted = await api.minted("write")
    await fetch(api.database, "alter table audit_row add constraint none check (false) not valid")
    path = KEYS + "/" + minted.key.id
    for method, where, body in (
        ("POST", KEYS, {"name": "k", "scope": "write"}),
        ("POST", path + "/rotate", None),
        ("DELETE", path, None),
    ):
        assert (await owner.call(method, where, body)).status == 500
    (row,) = await fetch(api.database, "select * from api_key")
    assert row["revoked_at"] is None
    assert row["token_prefix"] == minted.plaintext[:14]


# --- secrets ----------------------------------------------------------------------------------------------


async def test_planted_secrets_are_seen_nowhere_but_where_they_belong(
    api: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secret = "Xyzzy-planted-secret-0123456789"
    browser = api.browser()
    answers = [
        await browser.sign_up("owner@example.org", secret),
        await browser.sign_in("owner@example.org", secret + "x"),
        await browser.post("/auth/login", {"email": "owner@example.org", "password": secret, "extra": 1}),
        await browser.post("/auth/login", {"email": 1, "password": secret}),
        await browser.post("/auth/password", {"current_password": secret, "new_password": 1}),
        await browser.get("/auth/me", Authorization=f"Bearer {secret}"),
        await api.browser(key=secret).get(KEYS),
        await api.browser(cookie=secret).get(KEYS),
        await browser.get(ORG + "/audit"),
    ]
    made = (await browser.post(KEYS, {"name": "k", "scope": "admin"})).data
    rotated = (await browser.post(KEYS + f"/{made['key']['id']}/rotate")).data
    await api.means.keys.verify(made["plaintext"])
    await api.means.keys.verify(rotated["plaintext"])
    answers += [await browser.get(KEYS + "/audit"), await browser.get(KEYS)]
    shown = " ".join([str(answer.body) for answer in answers] + [caplog.text])
    dumped = ""
    for table in ("account", "login_session", "api_key", "audit_row", "membership"):
        dumped += str(await fetch(api.database, f"select * from {table}"))
    for planted in (secret, made["plaintext"], rotated["plaintext"], str(browser.cookie)):
        assert planted not in shown
        assert planted not in dumped
