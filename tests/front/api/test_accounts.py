"""Accounts: who may sign up, what a sign-in is worth, what a cookie can and cannot do."""

from __future__ import annotations

import base64
from typing import Any

import bcrypt
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from svc.front.auth.cookies import Seal, session_secret
from svc.store.accounts.accounts import BCRYPT_COST, WAITING_BOUND
from svc.store.postgres.database import Connection, Database
from tests.front.people import ORG, PASSWORD, Replica, replica

UNAUTHORIZED = (401, "auth.unauthorized", "sign in, or send a valid bearer key")
WRONG = (401, "AUTH.BAD_CREDENTIALS", "the address or the password is wrong")
FOREIGN = (403, "FORBIDDEN", "the request does not come from a page of this service: send its Origin")


async def fetch(database: Database, sql: str, *values: Any) -> list[dict[str, Any]]:
    async def work(connection: Connection) -> list[dict[str, Any]]:
        return [dict(row) for row in await connection.fetch(sql, *values)]

    return await database.run(work)


async def test_the_first_sign_up_owns_the_instance_and_later_ones_are_viewers(api: Replica) -> None:
    first = await api.browser().sign_up("Ada@Example.org")
    assert first.status == 201
    assert first.data["account"]["email"] == "Ada@Example.org"
    assert first.data["organizations"] == [{"slug": "default", "name": "Default", "role": "owner"}]
    second = await api.browser().sign_up("bob@example.org")
    assert [place["role"] for place in second.data["organizations"]] == ["viewer"]


async def test_two_first_sign_ups_at_once_make_one_owner(api: Replica) -> None:
    answers: list[Any] = []

    async def sign_up(email: str) -> None:
        answers.append(await api.browser().sign_up(email))

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(sign_up, f"p{number}@example.org")
    roles = [answer.data["organizations"][0]["role"] for answer in answers]
    assert sorted(roles) == ["owner", "viewer", "viewer", "viewer"]


async def test_the_cookie_says_nothing_and_is_out_of_reach_of_scripts(api: Replica) -> None:
    browser = api.browser()
    answer = await browser.sign_up("ada@example.org")
    (cookie,) = answer.headers.getlist("set-cookie")
    assert cookie.endswith("; Path=/; Max-Age=604800; HttpOnly; SameSite=Lax")
    assert "ada" not in cookie
    secret = session_secret(api.means.callers.seal, f"svc_session={browser.cookie}", secure=False)
    (row,) = await fetch(api.database, "select * from login_session")
    assert secret is not None
    assert secret.hex() not in str(row)


async def test_a_session_signs_in_and_ends_with_its_sign_out(api: Replica) -> None:
    browser = await api.owner()
    cookie = browser.cookie
    assert (await browser.get("/auth/me")).data["account"]["email"] == "owner@example.org"
    assert (await browser.post("/auth/logout")).data == {"signed_out": True}
    assert browser.cookie is None
    assert (await api.browser(cookie=cookie).get("/auth/me")).refused == UNAUTHORIZED
    assert (await browser.post("/auth/logout")).status == 200


async def test_a_wrong_password_and_an_unknown_address_are_told_alike(api: Replica) -> None:
    await api.owner()
    known = await api.browser().sign_in("owner@example.org", "not the password")
    unknown = await api.browser().sign_in("nobody@example.org", "not the password")
    no_address = await api.browser().sign_in("nobody", "not the password")
    assert known.refused == unknown.refused == no_address.refused == WRONG
    assert (await api.browser().sign_in("OWNER@example.org")).status == 200


async def test_known_and_unknown_addresses_cost_the_same_hashing(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[str] = []
    real_check, real_hash = bcrypt.checkpw, bcrypt.hashpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda *a: (costs.append(a[1][:7].decode()), real_check(*a))[1])
    monkeypatch.setattr(bcrypt, "hashpw", lambda *a: (costs.append(a[1][:7].decode()), real_hash(*a))[1])

    async def cost(act: Any) -> list[str]:
        costs.clear()
        await act
        return list(costs)

    async with replica(store, cost=BCRYPT_COST) as api:
        owner = await api.owner()
        await owner.put(ORG + "/signup-policy", {"mode": "domain", "domains": ["example.org"]})
        await fetch(store, "insert into account (email, email_key) values ('sso@x.org', 'sso@x.org')")
        assert (
            await cost(api.browser().sign_in("owner@example.org", "wrong"))
            == await cost(api.browser().sign_in("nobody@example.org", "wrong"))
            == await cost(api.browser().sign_in("sso@x.org", "wrong"))
            == await cost(api.browser().sign_in("owner@example.org"))
            == ["$2b$11$"]
        )
        assert (
            await cost(api.browser().sign_up("owner@example.org"))
            == await cost(api.browser().sign_up("new@example.org"))
            == await cost(api.browser().sign_up("new@elsewhere.org"))
            == ["$2b$11$"]
        )


async def test_a_flood_of_passwords_does_not_queue_for_ever(api: Replica) -> None:
    hashers = api.means.accounts.hashers
    held = [object(), object()]
    for borrower in held:
        await hashers.acquire_on_behalf_of(borrower)
    answers: list[int] = []

    async def sign_up(number: int) -> None:
        answers.append((await api.browser().sign_up(f"p{number}@example.org")).status)

    async with trio.open_nursery() as nursery:
        for number in range(WAITING_BOUND):
            nursery.start_soon(sign_up, number)
        await wait_all_tasks_blocked()
        assert hashers.statistics().tasks_waiting == WAITING_BOUND
        refused = await api.browser().sign_up("late@example.org")
        assert refused.refused[:2] == (503, "UNAVAILABLE")
        assert api.means.accounts.refused_full == 1
        for borrower in held:
            hashers.release_on_behalf_of(borrower)
    assert answers == [201] * WAITING_BOUND


async def test_an_address_has_one_account_in_any_letter_case(api: Replica) -> None:
    await api.owner()
    assert (await api.browser().sign_up("Owner@EXAMPLE.org")).refused == (
        409,
        "CONFLICT",
        "this address has an account; sign in",
    )


@pytest.mark.parametrize("email", ["", "ada", "ada@", "@example.org", "a b@example.org", "a@b@c..d", "a@-x"])
async def test_what_is_no_address_is_refused(api: Replica, email: str) -> None:
    assert (await api.browser().sign_up(email)).status == 400


@pytest.mark.parametrize(("length", "status"), [(7, 400), (8, 201), (200, 201), (201, 400)])
async def test_a_password_has_8_to_200_characters(api: Replica, length: int, status: int) -> None:
    browser = api.browser()
    assert (await browser.sign_up("ada@example.org", "ä" * length)).status == status


async def test_every_character_of_a_long_password_counts(api: Replica) -> None:
    await api.browser().sign_up("ada@example.org", "x" * 199 + "a")
    assert (await api.browser().sign_in("ada@example.org", "x" * 199 + "b")).refused == WRONG
    assert (await api.browser().sign_in("ada@example.org", "x" * 199 + "a")).status == 200


async def test_a_sign_in_never_takes_up_the_session_it_came_with(api: Replica) -> None:
    await api.owner()
    attacker = api.browser()
    await attacker.sign_up("mallory@example.org")
    planted = attacker.cookie
    victim = api.browser(cookie=planted)
    await victim.sign_in("owner@example.org")
    assert victim.cookie != planted
    assert (await api.browser(cookie=planted).get("/auth/me")).refused == UNAUTHORIZED


async def test_a_cookie_that_was_touched_is_no_cookie_and_costs_no_look_up(api: Replica) -> None:
    browser = await api.owner()
    assert browser.cookie is not None
    raw = bytearray(base64.urlsafe_b64decode(browser.cookie + "=="))
    lookups = len(await fetch(api.database, "select * from login_session"))
    assert lookups == 1
    for position in range(0, len(raw), 7):
        touched = bytes(raw[:position]) + bytes([raw[position] ^ 1]) + bytes(raw[position + 1 :])
        cookie = base64.urlsafe_b64encode(touched).rstrip(b"=").decode()
        assert session_secret(api.means.callers.seal, f"svc_session={cookie}", secure=False) is None
    other = Seal.of("another password").close(b"x" * 32)
    for cookie in ("", "x", other, browser.cookie[:-1], browser.cookie + "A", browser.cookie.swapcase()):
        assert (await api.browser(cookie=cookie).get("/auth/me")).refused == UNAUTHORIZED


async def test_a_session_is_over_after_seven_days(api: Replica) -> None:
    browser = await api.owner()
    await fetch(api.database, "update login_session set expires_at = now()")
    assert (await browser.get("/auth/me")).refused == UNAUTHORIZED
    again = api.browser()
    await again.sign_in("owner@example.org")
    assert len((await again.get("/auth/sessions")).data) == 1


async def test_sessions_are_listed_and_ended_from_the_next_request_on(api: Replica) -> None:
    first = await api.owner()
    second = api.browser()
    await second.sign_in("owner@example.org")
    rows = (await first.get("/auth/sessions")).data
    assert [row["current"] for row in rows] == [False, True]
    assert {row["address"] for row in rows} == {"192.0.2.1"}
    assert (await first.delete("/auth/sessions/" + rows[0]["id"])).data == {"ended": 1}
    assert (await second.get("/auth/me")).refused == UNAUTHORIZED
    for unknown in (rows[0]["id"], "no-uuid"):
        assert (await first.delete("/auth/sessions/" + unknown)).refused == (
            404,
            "NOT_FOUND",
            "no such session",
        )
    await second.sign_in("owner@example.org")
    assert (await first.delete("/auth/sessions")).data == {"ended": 1}
    assert (await first.get("/auth/me")).status == 200


async def test_nobody_ends_the_session_of_another(api: Replica) -> None:
    owner, other = await api.owner(), api.browser()
    await other.sign_up("bob@example.org")
    (row,) = (await owner.get("/auth/sessions")).data
    assert (await other.delete("/auth/sessions/" + row["id"])).status == 404
    assert (await owner.get("/auth/me")).status == 200


async def test_a_changed_password_ends_all_other_sessions(api: Replica) -> None:
    first, second = await api.owner(), api.browser()
    await second.sign_in("owner@example.org")
    wrong = await first.post("/auth/password", {"current_password": "x", "new_password": "another horse"})
    assert wrong.status == 401
    change = {"current_password": PASSWORD, "new_password": "another horse"}
    assert (await first.post("/auth/password", change)).data == {"ended": 1}
    assert (await second.get("/auth/me")).refused == UNAUTHORIZED
    assert (await first.get("/auth/me")).status == 200
    assert (await second.sign_in("owner@example.org")).refused == WRONG
    assert (await second.sign_in("owner@example.org", "another horse")).status == 200


COMMON = (
    400,
    "AUTH.COMMON_PASSWORD",
    "this password is one of the most common ones, which attackers try first; choose another",
)


@pytest.mark.parametrize("password", ["password", "Password1", "QWERTYUIOP"])
async def test_a_common_password_is_refused_wherever_one_is_chosen(api: Replica, password: str) -> None:
    assert (await api.browser().sign_up("first@example.org", password)).refused == COMMON
    assert await fetch(api.database, "select from account") == []
    owner = await api.owner()
    invited = (await owner.post(ORG + "/invitations", {"email": "ann@example.org"})).data["secret"]
    ann = api.browser()
    assert (await ann.sign_up("ann@example.org", password, invitation=invited)).refused == COMMON
    change = {"current_password": PASSWORD, "new_password": password}
    assert (await owner.post("/auth/password", change)).refused == COMMON
    # Nothing was spent by that: neither the invitation nor the old password.
    assert (await ann.sign_up("ann@example.org", invitation=invited)).status == 201
    assert (await api.browser().sign_in("owner@example.org")).status == 200


# --- the origin rule --------------------------------------------------------------------------------------

EVIL = "https://evil.example"


@pytest.mark.parametrize(
    ("origin", "headers"),
    [
        (None, {}),
        (EVIL, {}),
        ("null", {}),
        ("http://localhost:81", {}),
        ("http://localhost.evil.example", {}),
        (EVIL, {"Sec_Fetch_Site": "cross-site"}),
        ("http://localhost", {"Sec_Fetch_Site": "cross-site"}),
        ("http://localhost", {"Sec_Fetch_Site": "same-site"}),
        (None, {"Sec_Fetch_Site": "none"}),
        (EVIL, {"X_Forwarded_Host": "evil.example"}),
    ],
)
async def test_a_cookie_write_from_elsewhere_is_refused(
    api: Replica, origin: str | None, headers: dict[str, str]
) -> None:
    browser = await api.owner()
    browser.origin = origin
    assert (await browser.patch(ORG, {"name": "Owned"}, **headers)).refused == FOREIGN
    assert (await browser.get(ORG, **headers)).data["name"] == "Default"


async def test_a_cookie_write_from_our_own_page_goes_through(api: Replica) -> None:
    browser = await api.owner()
    assert (await browser.patch(ORG, {"name": "A"})).data["name"] == "A"
    browser.origin = None
    assert (await browser.patch(ORG, {"name": "B"}, Sec_Fetch_Site="same-origin")).data["name"] == "B"


async def test_a_sign_in_from_a_foreign_page_is_refused_and_one_without_a_page_is_not(api: Replica) -> None:
    await api.owner()
    assert (await api.browser(origin=EVIL).sign_in("owner@example.org")).refused == FOREIGN
    assert (await api.browser(origin=EVIL).post("/auth/logout")).refused == FOREIGN
    assert (await api.browser(origin=None).sign_in("owner@example.org")).status == 200


async def test_the_public_name_is_our_own_origin(store: Database) -> None:
    async with replica(store, SVC_AUTH_FRONTEND_URL="https://traces.example.org/ui") as api:
        browser = await api.owner()
        browser.origin = "https://traces.example.org"
        assert (await browser.patch(ORG, {"name": "A"})).status == 200


# --- limits and forwarded headers -------------------------------------------------------------------------

LIMITED = (429, "RATE_LIMITED", "too many tries; wait before the next")


async def test_tries_are_limited_per_account_from_wherever_they_come(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ACCOUNT_ANYWHERE="3") as api:
        await api.owner()
        for number in range(3):
            guesser = api.browser(peer=f"192.0.2.{number + 10}")
            assert (await guesser.sign_in("owner@example.org", "guess")).refused == WRONG
        refused = await api.browser(peer="192.0.2.99").sign_in("OWNER@example.org")
        assert refused.refused == LIMITED
        assert 1 <= int(refused.headers["retry-after"]) <= 300
        assert (await api.browser().sign_in("bob@example.org", "guess")).refused == WRONG


async def test_tries_are_limited_per_client_address(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ADDRESS="3") as api:
        guesser = api.browser()
        for number in range(3):
            assert (await guesser.sign_in(f"p{number}@example.org", "guess")).refused == WRONG
        assert (await guesser.sign_in("p3@example.org", "guess")).refused == LIMITED
        # A header that anyone can send moves nobody to another address.
        assert (await guesser.sign_in("p4@example.org", "guess")).refused == LIMITED
        forged = await guesser.post(
            "/auth/login", {"email": "a@example.org", "password": "g"}, X_Forwarded_For="203.0.113.9"
        )
        assert forged.refused == LIMITED
        assert (await api.browser(peer="192.0.2.2").sign_in("a@example.org", "guess")).refused == WRONG


async def test_a_sign_in_that_succeeds_clears_its_account(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ACCOUNT="3") as api:
        browser = await api.owner()
        for _ in range(4):
            assert (await browser.sign_in("owner@example.org")).status == 200


UPSTREAM = {
    "SITE_DOMAIN": "traces.example.org",
    "TLS_MODE": "upstream",
    "TRUSTED_PROXIES": "10.0.0.0/8",
}


@pytest.mark.parametrize(
    ("settings", "peer", "forwarded", "seen"),
    [
        ({}, "10.0.0.1", "203.0.113.9", "10.0.0.1"),
        ({"TRUSTED_PROXIES": "10.0.0.0/8"}, "10.0.0.1", "203.0.113.9", "10.0.0.1"),
        (UPSTREAM, "192.0.2.1", "203.0.113.9", "192.0.2.1"),
        (UPSTREAM, "10.0.0.1", "203.0.113.9", "203.0.113.9"),
        (UPSTREAM, "10.0.0.1", "1.1.1.1, 203.0.113.9", "203.0.113.9"),
        (UPSTREAM, "10.0.0.1", "1.1.1.1, 203.0.113.9, 10.9.9.9", "203.0.113.9"),
        (UPSTREAM, "10.0.0.1", "not an address", "10.0.0.1"),
        (UPSTREAM, "10.0.0.1", "", "10.0.0.1"),
    ],
)
async def test_forwarded_addresses_count_only_from_trusted_proxies_upstream(
    store: Database, settings: dict[str, str], peer: str, forwarded: str, seen: str
) -> None:
    async with replica(store, **settings) as api:
        browser = api.browser(peer=peer)
        body = {"email": "ada@example.org", "password": PASSWORD}
        assert (await browser.post("/auth/signup", body, X_Forwarded_For=forwarded)).status == 201
        assert (await browser.get("/auth/sessions")).data[0]["address"] == seen


@pytest.mark.parametrize(
    ("settings", "peer", "secure"),
    [
        ({}, "10.0.0.1", False),
        ({"TLS_MODE": "upstream", "TRUSTED_PROXIES": "10.0.0.0/8"}, "10.0.0.1", False),
        (UPSTREAM, "192.0.2.1", True),
    ],
)
async def test_the_cookie_is_secure_when_it_is_served_over_https(
    store: Database, settings: dict[str, str], peer: str, secure: bool
) -> None:
    async with replica(store, **settings) as api:
        body = {"email": "ada@example.org", "password": PASSWORD}
        answer = await api.browser(peer=peer).post("/auth/signup", body, X_Forwarded_Proto="https")
        assert answer.headers["set-cookie"].endswith("; Secure") is secure


# --- the sign-up policy -----------------------------------------------------------------------------------

REFUSED = (
    403,
    "AUTH.SIGNUP_REFUSED",
    "this address can sign up only with an invitation; if you have one, open its link, and ask whoever"
    " invited you, or an owner or admin, for a new one",
)
POLICY = ORG + "/signup-policy"


async def test_the_policy_is_open_until_it_is_tightened(api: Replica) -> None:
    owner = await api.owner()
    policy = (await owner.get(POLICY)).data
    assert (policy["mode"], policy["domains"]) == ("open", [])
    assert (await api.browser().get("/auth/mode")).data == {
        "auth": "password",
        "sso": False,
        "signup": "open",
        "has_accounts": True,
    }


async def test_a_domain_policy_admits_exact_domains_only(api: Replica) -> None:
    owner = await api.owner()
    put = await owner.put(POLICY, {"mode": "domain", "domains": ["Example.com", "example.com"]})
    assert put.data == {"mode": "domain", "domains": ["example.com"]}
    for email in ("a@example.org", "a@sub.example.com", "a@example.com.evil.org", "a@xexample.com"):
        assert (await api.browser().sign_up(email)).refused == REFUSED
    assert (await api.browser().sign_up("a@EXAMPLE.com")).status == 201
    assert len(await fetch(api.database, "select from account")) == 2


async def test_a_refused_sign_up_creates_nothing(api: Replica) -> None:
    owner = await api.owner()
    await owner.put(POLICY, {"mode": "invite"})
    count = (
        "select (select count(*) from account) as accounts, (select count(*) from membership) as members,"
        " (select count(*) from audit_row) as audited, (select count(*) from login_session) as sessions"
    )
    before = await fetch(api.database, count)
    refused = await api.browser().sign_up("a@example.org")
    assert refused.refused == REFUSED
    assert "set-cookie" not in refused.headers
    assert await fetch(api.database, count) == before


async def test_tightening_removes_nobody(api: Replica) -> None:
    owner, member = await api.owner(), api.browser()
    await member.sign_up("bob@elsewhere.org")
    await owner.put(POLICY, {"mode": "domain", "domains": ["example.org"]})
    assert (await member.get(ORG)).status == 200
    assert (await api.browser().sign_in("bob@elsewhere.org")).status == 200


async def test_the_first_account_is_admitted_in_any_mode(api: Replica) -> None:
    await api.token("write")
    await fetch(api.database, 'update organization set signup_policy = \'{"mode": "invite"}\'')
    assert (await api.browser().sign_up("ada@example.org")).status == 201


@pytest.mark.parametrize("stored", ['{"mode": "sometimes"}', "[]", '{"domains": ["example.org"]}', "null"])
async def test_a_policy_that_cannot_be_read_fails_closed(api: Replica, stored: str) -> None:
    owner = await api.owner()
    await fetch(api.database, "update organization set signup_policy = $1::jsonb", stored)
    assert (await api.browser().sign_up("a@example.org")).refused == REFUSED
    assert (await owner.get(POLICY)).data["mode"] == "invite"
    assert (await owner.put(POLICY, {"mode": "open", "domains": []})).status == 200
    assert (await api.browser().sign_up("a@example.org")).status == 201


async def test_a_policy_change_is_audited_and_the_raw_settings_cannot_make_one(api: Replica) -> None:
    owner = await api.owner()
    for body in ({"name": "A", "signup_policy": {"mode": "invite"}}, {"name": "A", "mode": "invite"}):
        assert (await owner.patch(ORG, body)).status == 400
    await owner.put(POLICY, {"mode": "invite"})
    (row,) = await fetch(
        api.database, "select actor, details from audit_row where action = 'signup_policy.update'"
    )
    assert row["actor"] == "owner@example.org"
    assert '"invite"' in row["details"]


@pytest.mark.parametrize(
    "body",
    [
        {"mode": "closed"},
        {"mode": "domain", "domains": []},
        {"mode": "domain", "domains": ["*.example.org"]},
        {"mode": "domain", "domains": ["@example.org"]},
        {"mode": "open", "domains": [1]},
        {},
    ],
)
async def test_a_policy_that_means_nothing_is_refused(api: Replica, body: dict[str, Any]) -> None:
    assert (await (await api.owner()).put(POLICY, body)).status == 400


# --- what nobody knows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/", "/api/nothing", ORG, ORG + "/signup-policy"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_without_a_credential_the_api_says_unauthorized(api: Replica, path: str, method: str) -> None:
    assert (await api.browser().call(method, path)).refused == UNAUTHORIZED


async def test_somebody_signed_in_hears_of_paths_and_methods(api: Replica) -> None:
    browser = await api.owner()
    assert (await browser.get("/api/nothing")).status == 404
    wrong = await browser.delete(ORG)
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, PATCH")
    assert (await browser.get("/api/orgs/other")).refused == (404, "NOT_FOUND", "no such organization")
    assert (await browser.patch(ORG, b"{")).status == 400
    assert (await browser.patch(ORG, {"name": " "})).refused == (400, "BAD_REQUEST", "name must not be blank")
    assert (await browser.patch(ORG, {"name": "a\x00b"})).status == 400


# --- single-user mode -------------------------------------------------------------------------------------


async def test_without_authentication_whoever_reaches_it_owns_it(store: Database) -> None:
    async with replica(store, SVC_AUTH_DISABLED="true") as api:
        anyone = api.browser(origin=None)
        assert (await anyone.get("/auth/me")).data["organizations"][0]["role"] == "owner"
        assert (await anyone.get("/auth/mode")).data["auth"] == "disabled"
        assert (await anyone.patch(ORG, {"name": "Mine"})).data["name"] == "Mine"
        assert (await anyone.sign_up("ada@example.org")).status == 409
        assert (await anyone.get("/auth/sessions")).status == 401


async def test_without_authentication_foreign_pages_and_rebound_names_stay_outside(store: Database) -> None:
    async with replica(store, SVC_AUTH_DISABLED="true") as api:
        assert (await api.browser(origin=EVIL).get(ORG)).refused == FOREIGN
        assert (await api.browser(origin=EVIL).patch(ORG, {"name": "Owned"})).refused == FOREIGN
        rebound = api.browser(origin="http://rebound.example")
        assert (await rebound.get(ORG, Host="rebound.example")).refused == FOREIGN
        assert (await api.browser(origin=None).get(ORG, Host="rebound.example")).refused == FOREIGN
