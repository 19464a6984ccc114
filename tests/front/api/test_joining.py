"""Who may join: invitations with a secret, the question to the first account, keys of members who go."""

from __future__ import annotations

from typing import Any

import pytest

from actors.keys import Grant, WasRevoked
from svc.store.accounts.admission import ByPassword, NotAdmitted, admit
from svc.store.postgres.database import Connection, Database
from tests.front.api.test_accounts import POLICY, REFUSED, fetch
from tests.front.people import ORG, PROJECT, Browser, Replica, replica

INVITATIONS, MEMBERS, KEYS = ORG + "/invitations", ORG + "/members", PROJECT + "/api-keys"
ALIKE = (409, "CONFLICT", "this address looks like that of another account; write it in one alphabet")


async def invited(owner: Browser, email: str = "ann@example.org", role: str = "admin") -> str:
    """The secret of a new invitation."""
    made = await owner.post(INVITATIONS, {"email": email, "role": role})
    assert made.status == 201, made.body
    secret: str = made.data["secret"]
    return secret


# --- invitations ------------------------------------------------------------------------------------------


async def test_an_address_alone_takes_no_invitation_up(api: Replica) -> None:
    owner = await api.owner()
    await owner.put(POLICY, {"mode": "invite"})
    secret = await invited(owner)
    assert (await api.browser().sign_up("ann@example.org")).refused == REFUSED
    assert (await api.browser().sign_up("ann@example.org", invitation="x" * 43)).refused == REFUSED
    assert (await api.browser().sign_up("eve@example.org", invitation=secret)).refused == REFUSED
    taken = await api.browser().sign_up("ANN@example.org", invitation=secret)
    assert taken.data["organizations"][0]["role"] == "admin"


@pytest.mark.parametrize("mode", ["open", "domain", "invite"])
async def test_who_names_an_invited_address_is_told_to_use_the_link_in_every_mode(
    api: Replica, mode: str
) -> None:
    owner = await api.owner()
    await owner.put(POLICY, {"mode": mode, "domains": ["example.org"] if mode == "domain" else []})
    await invited(owner, role="owner")
    refused = await api.browser().sign_up("ann@example.org")
    assert refused.refused == REFUSED
    assert "open its link" in refused.refused[2]
    assert "ask whoever invited you" in refused.refused[2]
    assert len((await owner.get(INVITATIONS)).data) == 1
    assert len(await fetch(api.database, "select from account")) == 1
    # Nobody else is kept out by it.
    status = (await api.browser().sign_up("bob@example.org")).status
    assert status == (403 if mode == "invite" else 201)


async def test_a_secret_serves_once(api: Replica) -> None:
    owner = await api.owner()
    secret = await invited(owner)
    assert (await api.browser().sign_up("ann@example.org", invitation=secret)).status == 201
    for email in ("ann@example.org", "ben@example.org"):
        assert (await api.browser().sign_up(email, invitation=secret)).refused == REFUSED


async def test_an_invitation_expires_and_makes_room_for_another(api: Replica) -> None:
    owner = await api.owner()
    await owner.put(POLICY, {"mode": "invite"})
    secret = await invited(owner)
    (shown,) = (await owner.get(INVITATIONS)).data
    assert shown["expires_at"] > shown["created_at"]
    await fetch(api.database, "update invitation set expires_at = now()")
    assert (await api.browser().sign_up("ann@example.org", invitation=secret)).refused == REFUSED
    assert (await owner.get(INVITATIONS)).data == []
    again = await invited(owner)
    assert (await api.browser().sign_up("ann@example.org", invitation=secret)).refused == REFUSED
    assert (await api.browser().sign_up("ann@example.org", invitation=again)).status == 201


async def test_an_invitation_from_before_there_were_secrets_admits_nobody_by_its_address(
    api: Replica,
) -> None:
    owner = await api.owner()
    await owner.put(POLICY, {"mode": "invite"})
    await invited(owner)
    await fetch(api.database, "update invitation set digest = null")
    for secret in (None, "", "x"):
        assert (await api.browser().sign_up("ann@example.org", invitation=secret)).refused == REFUSED


async def test_the_secret_is_shown_once_and_stored_as_a_digest(api: Replica) -> None:
    owner = await api.owner()
    secret = await invited(owner)
    for path in (INVITATIONS, ORG + "/audit"):
        assert secret not in str((await owner.get(path)).body)
    assert secret not in str(await fetch(api.database, "select * from invitation"))
    assert secret.encode().hex() not in str(await fetch(api.database, "select i::text from invitation i"))


class Recorded:
    """A connection that notes every statement."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.said = connection, list[str]()

    def __getattr__(self, verb: str) -> Any:
        def note(sql: str, *values: Any) -> Any:
            self.said.append(sql)
            return getattr(self.connection, verb)(sql, *values)

        return note


async def test_a_refusal_costs_the_same_whether_or_not_the_address_is_invited(api: Replica) -> None:
    owner = await api.owner()
    await owner.put(POLICY, {"mode": "domain", "domains": ["example.com"]})
    await invited(owner)

    async def said(email: str, secret: str | None) -> list[str]:
        async def work(connection: Connection) -> list[str]:
            recorded: Any = Recorded(connection)
            refused = await admit(recorded, email, email, ByPassword(b"hash", secret))
            assert refused == NotAdmitted()
            spoken: list[str] = recorded.said
            return spoken

        return await api.database.run(work)

    statements = await said("nobody@example.org", None)
    assert len(statements) >= 3
    for email in ("ann@example.org", "nobody@example.org", "owner@example.org"):
        for secret in (None, "", "wrong"):
            assert await said(email, secret) == statements


# --- the question to the first account --------------------------------------------------------------------


@pytest.mark.parametrize(("bind", "proposed"), [("127.0.0.1:8000", "open"), ("0.0.0.0:8000", "invite")])
async def test_the_first_account_is_asked_who_may_join(store: Database, bind: str, proposed: str) -> None:
    async with replica(store, SVC_HTTP_BIND=bind) as api:
        owner = api.browser()
        first = await owner.sign_up("owner@example.org")
        asked = first.data["signup_undecided"]
        assert asked["proposed"] == proposed
        assert "PUT /api/orgs/default/signup-policy decides" in asked["message"]
        assert "signup_undecided" not in (await api.browser().sign_up("bob@example.org")).data
        policy = (await owner.get(POLICY)).data
        assert (policy["mode"], policy["undecided"]) == ("open", asked)
        assert ("warnings" in policy) is (proposed == "invite")
        await owner.put(POLICY, {"mode": "invite"})
        assert (await owner.get(POLICY)).data == {"mode": "invite", "domains": []}


async def test_an_open_instance_that_others_reach_says_so_although_it_was_decided(store: Database) -> None:
    async with replica(store, SVC_HTTP_BIND="0.0.0.0:8000") as api:
        owner = await api.owner()
        await owner.put(POLICY, {"mode": "open"})
        policy = (await owner.get(POLICY)).data
        assert "undecided" not in policy
        assert policy["warnings"] == [
            "anyone who can reach this service may sign up (sign-up mode open), and it can be reached from "
            "outside; set mode invite or domain with PUT /api/orgs/default/signup-policy"
        ]


async def test_a_domain_policy_says_that_addresses_are_not_proved(api: Replica) -> None:
    owner = await api.owner()
    await owner.put(POLICY, {"mode": "domain", "domains": ["example.org"]})
    assert (await owner.get(POLICY)).data["warnings"] == [
        "sign-up mode domain takes addresses at their word: whoever names one at a listed domain is "
        "admitted; set up "
        "an identity provider (SSO_ISSUER_URL) and SVC_AUTH_PASSWORDS=false, or use mode invite"
    ]


async def test_who_joins_uninvited_mints_nothing_until_the_owner_chooses_otherwise(api: Replica) -> None:
    owner, viewer, member = await api.owner(), api.browser(), api.browser()
    await viewer.sign_up("bob@example.org")
    assert (await viewer.post(KEYS, {"name": "k", "scope": "write"})).status == 403
    assert (await owner.get(ORG)).data["signup_role"] == "viewer"
    assert (await viewer.patch(ORG, {"signup_role": "member"})).status == 403
    assert (await owner.patch(ORG, {"signup_role": "member"})).data["signup_role"] == "member"
    joined = await member.sign_up("carol@example.org")
    assert joined.data["organizations"][0]["role"] == "member"
    assert (await member.post(KEYS, {"name": "k", "scope": "write"})).status == 201
    (row, *_) = (await owner.get(ORG + "/audit")).data["rows"][2:]
    assert (row["action"], row["details"]) == ("org.update", {"signup_role": "member"})


@pytest.mark.parametrize("body", [{}, {"signup_role": "owner"}, {"signup_role": "admin"}, {"name": " "}])
async def test_settings_that_mean_nothing_are_refused(api: Replica, body: dict[str, str]) -> None:
    assert (await (await api.owner()).patch(ORG, body)).status == 400


# --- members who go ---------------------------------------------------------------------------------------


async def member_with_keys(api: Replica, owner: Browser) -> tuple[str, list[Any]]:
    """A member who minted a key in each of two projects; and one of the owner's keys that they rotated."""
    member = await api.member("bob@example.org", "member", owner)
    await owner.post(ORG + "/projects", {"name": "Other"})
    theirs = (await owner.post(KEYS, {"name": "rotated", "scope": "query"})).data["key"]
    made = [
        (await member.post(KEYS, {"name": "one", "scope": "write"})).data,
        (await member.post(ORG + "/projects/other/api-keys", {"name": "two", "scope": "query"})).data,
        (await member.post(KEYS + f"/{theirs['id']}/rotate")).data,
    ]
    me = (await member.get("/auth/me")).data["account"]["id"]
    return me, made


async def test_a_member_who_goes_leaves_a_list_of_keys(api: Replica) -> None:
    owner = await api.owner()
    me, made = await member_with_keys(api, owner)
    gone = (await owner.delete(f"{MEMBERS}/{me}")).data
    assert (gone["removed"], gone["key_count"], gone["keys_revoked"]) == (True, 3, 0)
    assert {(key["id"], key["project"]) for key in gone["keys"]} == {
        (made[0]["key"]["id"], "default"),
        (made[1]["key"]["id"], "other"),
        (made[2]["key"]["id"], "default"),
    }
    for key in made:
        assert isinstance(await api.means.keys.verify(key["plaintext"]), Grant)


async def test_the_keys_of_a_member_who_goes_are_revoked_in_the_same_call(api: Replica) -> None:
    owner = await api.owner()
    mine = (await owner.post(KEYS, {"name": "mine", "scope": "write"})).data
    me, made = await member_with_keys(api, owner)
    for key in (mine, *made):
        assert isinstance(await api.means.keys.verify(key["plaintext"]), Grant)
    gone = (await owner.delete(f"{MEMBERS}/{me}?revoke_keys=true")).data
    assert (gone["key_count"], gone["keys_revoked"]) == (3, 3)
    assert [await api.means.keys.verify(key["plaintext"]) for key in made] == [WasRevoked()] * 3
    assert isinstance(await api.means.keys.verify(mine["plaintext"]), Grant)
    rows = (await owner.get(ORG + "/audit")).data["rows"]
    assert (rows[0]["action"], rows[0]["details"]["keys_revoked"]) == ("member.remove", 3)
    assert [(row["action"], row["actor"], row["details"]["minted_by"]) for row in rows[1:4]] == [
        ("key.revoke", "owner@example.org", "bob@example.org")
    ] * 3


async def test_a_key_that_a_key_rotated_belongs_to_whoever_minted_that_one(api: Replica) -> None:
    owner = await api.owner()
    member = await api.member("bob@example.org", "member", owner)
    mine = (await owner.post(KEYS, {"name": "mine", "scope": "write"})).data["key"]
    admin = (await member.post(KEYS, {"name": "agent", "scope": "admin"})).data
    program = api.browser(key=admin["plaintext"], origin=None)
    assert (await program.post(f"{KEYS}/{mine['id']}/rotate")).status == 200
    assert {row["minted_by"] for row in (await owner.get(KEYS)).data} == {"bob@example.org"}


@pytest.mark.errors_expected
async def test_a_member_whose_keys_cannot_be_revoked_stays(api: Replica) -> None:
    owner = await api.owner()
    me, _ = await member_with_keys(api, owner)
    await fetch(api.database, "alter table api_key add constraint none check (revoked_at is null) not valid")
    assert (await owner.delete(f"{MEMBERS}/{me}?revoke_keys=true")).status == 500
    assert len((await owner.get(MEMBERS)).data) == 2


# --- addresses that look alike ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "email",
    [
        "\u043ewner@example.org",  # Cyrillic o
        "\u041eWNER@example.org",  # Cyrillic O
        "\u03bfwner@example.org",  # Greek omicron
        "owne\u0433@example.org",  # Cyrillic ghe
        "o\u1d21ner@example.org",  # small capital w
    ],
)
async def test_an_address_that_looks_like_another_is_refused(api: Replica, email: str) -> None:
    owner = await api.owner()
    assert (await api.browser().sign_up(email)).refused == ALIKE
    assert (await owner.post(INVITATIONS, {"email": email})).refused == ALIKE
    assert len(await fetch(api.database, "select from account")) == 1


@pytest.mark.parametrize(
    "email", ["\uff4fwner@example.org", "owner\uff20example.org", "\U0001d428wner@example.org"]
)
async def test_compatible_letters_are_the_plain_ones(api: Replica, email: str) -> None:
    await api.owner()
    assert (await api.browser().sign_up(email)).refused[2] == "this address has an account; sign in"
    assert (await api.browser().sign_in(email)).data["account"]["email"] == "owner@example.org"


@pytest.mark.parametrize(
    "mark", ["\u202e", "\u2066", "\u200f", "\u200b", "\u00ad", "\u0007", "\u034f", "\ufe0f", "\u3164"]
)
async def test_an_address_holds_nothing_unseen(api: Replica, mark: str) -> None:
    assert (await api.browser().sign_up(f"ow{mark}ner@example.org")).status == 400


async def test_accounts_from_before_are_looked_at_too(api: Replica) -> None:
    await api.owner()
    await fetch(api.database, "update account set likenesses = null")
    assert (await api.browser().sign_up("\u043ewner@example.org")).refused == ALIKE
    assert (await api.browser().sign_up("other@example.org")).status == 201
    assert await fetch(api.database, "select from account where likenesses is null") == []


async def test_people_who_only_resemble_each_other_both_have_an_account(api: Replica) -> None:
    for email in (
        "ol1@example.org",
        "oll@example.org",
        "jose@example.org",
        "jos\u00e9@example.org",
        "0ll@example.org",
    ):
        assert (await api.browser().sign_up(email)).status == 201
