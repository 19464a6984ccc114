"""Invitations of accounts that exist, and their links by mail."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio

from actors.invitations import MAILBOX_BOUND
from actors.supervision import Vitals
from svc.application.invitation_mail import SmtpInvitationMail
from svc.store.accounts.admission import Account
from svc.store.accounts.invitations import MAILS_BOUND
from svc.store.postgres.database import Database
from tests.front.api.test_accounts import POLICY, REFUSED, fetch
from tests.front.api.test_joining import INVITATIONS, MEMBERS, invited
from tests.front.people import Browser, Replica, replica
from tests.outside.test_alerts import smtp

LINK = "/auth/invitation/link"
ANN = "ann@example.org"
CHANNEL = (
    "insert into alert_channel (project_id, id, kind, name, params, created_at, updated_at)"
    " select id, gen_random_uuid(), 'email', 'ops', '{\"to\": [\"ops@example.org\"]}', now(), now()"
    " from project"
)


async def removed(api: Replica, owner: Browser, email: str = ANN) -> Browser:
    """Somebody with an account who belongs nowhere, signed in."""
    person = api.browser()
    assert (await person.sign_up(email)).status == 201
    (member,) = [row for row in (await owner.get(MEMBERS)).data if row["email"] == email]
    assert (await owner.delete(f"{MEMBERS}/{member['id']}")).status == 200
    return person


async def roles(person: Browser) -> list[str]:
    return [place["role"] for place in (await person.get("/auth/me")).data["organizations"]]


# --- accounts that exist ----------------------------------------------------------------------------------


async def test_an_invitation_of_an_account_is_offered_after_sign_in_and_taken_with_its_link(
    api: Replica,
) -> None:
    owner = await api.owner()
    ann = await removed(api, owner)
    secret = await invited(owner, role="admin")
    offered = (await ann.sign_in(ANN)).data["invitation"]
    assert (offered["role"], offered["invited_by"], offered["needs_link"]) == (
        "admin",
        "owner@example.org",
        True,
    )
    assert (await ann.get("/auth/me")).data["invitation"] == offered
    # A password proves nothing about the address.
    refused = await ann.post("/auth/invitation/accept", {})
    assert refused.refused[:2] == (403, "FORBIDDEN")
    wrong = await ann.post("/auth/invitation/accept", {"invitation": "x" * 43})
    assert wrong.refused == refused.refused
    assert await roles(ann) == []
    taken = await ann.post("/auth/invitation/accept", {"invitation": secret})
    assert [place["role"] for place in taken.data["organizations"]] == ["admin"]
    assert "invitation" not in taken.data
    assert (await owner.get(INVITATIONS)).data == []
    again = await ann.post("/auth/invitation/accept", {"invitation": secret})
    assert again.refused[:2] == (404, "NOT_FOUND")
    (row,) = await fetch(api.database, "select actor from audit_row where action = 'invitation.accept'")
    assert row["actor"] == ANN


async def test_a_declined_invitation_is_over(api: Replica) -> None:
    owner = await api.owner()
    ann = await removed(api, owner)
    secret = await invited(owner)
    assert "invitation" not in (await ann.post("/auth/invitation/decline")).data
    assert (await ann.post("/auth/invitation/decline")).status == 404
    assert (await ann.post("/auth/invitation/accept", {"invitation": secret})).status == 404
    assert (await owner.get(INVITATIONS)).data == []


async def test_a_sign_up_with_the_link_of_an_invited_account_leads_to_the_sign_in(api: Replica) -> None:
    owner = await api.owner()
    await removed(api, owner)
    secret = await invited(owner)
    answer = await api.browser().sign_up(ANN, invitation=secret)
    assert answer.refused == (409, "CONFLICT", "this address has an account; sign in")
    assert len((await owner.get(INVITATIONS)).data) == 1


@pytest.mark.parametrize(("as_", "offered"), [("viewer", False), ("member", False), ("admin", True)])
async def test_an_invitation_that_gives_a_member_nothing_is_withdrawn(
    api: Replica, as_: str, offered: bool
) -> None:
    """As releases left them that admitted an invited address without its link."""
    owner, ann = await api.owner(), api.browser()
    await ann.sign_up(ANN)
    await fetch(api.database, "update membership set role = 'member' where role = 'viewer'")
    await fetch(
        api.database,
        "insert into invitation (org_id, email, email_key, role, invited_by, expires_at)"
        " select id, $1, $1, $2, 'owner@example.org', now() + interval '1 day' from organization",
        ANN,
        as_,
    )
    assert ("invitation" in (await ann.sign_in(ANN)).data) is offered
    assert bool((await owner.get(INVITATIONS)).data) is offered
    assert await roles(ann) == ["member"]


async def test_who_is_added_as_a_member_is_invited_no_more(api: Replica) -> None:
    owner = await api.owner()
    await removed(api, owner)
    await invited(owner)
    assert (await owner.post(MEMBERS, {"email": ANN, "role": "viewer"})).status == 201
    assert (await owner.get(INVITATIONS)).data == []


async def test_who_takes_the_instance_by_the_operators_link_is_invited_no_more(api: Replica) -> None:
    owner = await api.owner()
    await invited(owner, role="viewer")
    made = await api.means.accounts.sign_up(ANN, ANN, "correct horse battery", owns=True)
    assert isinstance(made, Account)
    assert (await owner.get(INVITATIONS)).data == []
    ann = api.browser()
    assert "invitation" not in (await ann.sign_in(ANN)).data
    assert await roles(ann) == ["owner"]


async def test_an_invitation_of_somebody_else_is_not_taken(api: Replica) -> None:
    owner = await api.owner()
    eve = await removed(api, owner, "eve@example.org")
    secret = await invited(owner)
    assert (await eve.post("/auth/invitation/accept", {"invitation": secret})).status == 404
    assert await roles(eve) == []


# --- the link by mail -------------------------------------------------------------------------------------


@asynccontextmanager
async def mailing(store: Database, **settings: str) -> AsyncIterator[tuple[Replica, Any]]:
    """A replica and the inbox of its mail server."""
    with smtp(None) as (inbox, port):
        env = {
            "SVC_SMTP_URL": f"smtp://localhost:{port}?starttls=off",
            "SVC_AUTH_FRONTEND_URL": "https://traces.example.org",
            **settings,
        }
        async with replica(store, **env) as api:
            yield api, inbox


def mail_of(api: Replica) -> SmtpInvitationMail:
    return cast(SmtpInvitationMail, api.means.invitation_mail)


async def worked_off(api: Replica) -> None:
    """The mailer does all that was asked, and ends with its mailbox."""
    mail_of(api).send.close()
    with trio.fail_after(30):
        await mail_of(api).mailer(Vitals("invitation-mailer")).run()


async def test_the_link_is_mailed_to_the_invited_address_and_opens(store: Database) -> None:
    async with mailing(store) as (api, inbox):
        owner, stranger = await api.owner(), api.browser()
        await fetch(store, CHANNEL)
        handed_over = await invited(owner, role="member")
        # Wherever the request says that it went, the link leads to the origin that is set.
        asked = await stranger.post(LINK, {"email": "ANN@example.org"}, X_Forwarded_Host="evil.example")
        assert (asked.status, asked.data) == (202, {"asked": True})
        await worked_off(api)
        ((envelope, mail),) = inbox.mails
        assert envelope.rcpt_tos == [ANN]
        assert mail["Subject"] == "The link of your invitation"
        text = mail.get_content()
        assert "owner@example.org invited you to" in text
        (secret,) = re.findall(r"https://traces\.example\.org/signup\?invitation=([A-Za-z0-9_-]{43})\s", text)
        assert secret != handed_over
        assert secret not in str(await fetch(store, "select i::text from invitation i"))
        taken = await stranger.sign_up(ANN, invitation=secret)
        assert taken.data["organizations"][0]["role"] == "member"


async def test_the_link_that_was_handed_over_opens_beside_the_mailed_one(store: Database) -> None:
    async with mailing(store) as (api, _):
        owner = await api.owner()
        await fetch(store, CHANNEL)
        secret = await invited(owner)
        await api.browser().post(LINK, {"email": ANN})
        await worked_off(api)
        assert (await api.browser().sign_up(ANN, invitation=secret)).status == 201


async def test_an_invitation_is_mailed_rarely_and_not_for_ever(store: Database) -> None:
    async with mailing(store) as (api, inbox):
        owner = await api.owner()
        await fetch(store, CHANNEL)
        await invited(owner)
        links = mail_of(api).store
        assert await links.mailed(ANN) is not None
        assert await links.mailed(ANN) is None
        for _ in range(MAILS_BOUND - 1):
            await fetch(store, "update invitation set mailed_at = now() - interval '11 minutes'")
            assert await links.mailed(ANN) is not None
        await fetch(store, "update invitation set mailed_at = now() - interval '11 minutes'")
        assert await links.mailed(ANN) is None
        assert inbox.mails == []


async def test_who_asks_for_a_link_hears_the_same_whether_or_not_the_address_is_invited(
    store: Database,
) -> None:
    async with mailing(store) as (api, inbox):
        owner, stranger = await api.owner(), api.browser()
        await fetch(store, CHANNEL)
        await invited(owner)
        # Nothing is looked up before the answer: the mailer does it.
        answers = [await stranger.post(LINK, {"email": email}) for email in ("bob@example.org", ANN)]
        assert answers[0].body == answers[1].body
        await worked_off(api)
        assert [envelope.rcpt_tos for envelope, _ in inbox.mails] == [[ANN]]


async def test_requests_for_links_are_limited_as_sign_ups_are(store: Database) -> None:
    async with mailing(store, SVC_AUTH_TRIES_PER_ACCOUNT="2") as (api, _):
        await api.owner()
        await fetch(store, CHANNEL)
        statuses = [(await api.browser().post(LINK, {"email": ANN})).status for _ in range(3)]
        assert statuses == [202, 202, 429]


async def test_beyond_the_mailbox_requests_are_counted_and_dropped(store: Database) -> None:
    async with replica(store) as api:
        mail = mail_of(api)
        for number in range(MAILBOX_BOUND + 3):
            mail.ask(f"{number}@example.org")
        assert mail.tally.refused_full == 3


async def test_without_a_channel_of_kind_mail_nothing_is_mailed(store: Database) -> None:
    async with mailing(store) as (api, _):
        owner = await api.owner()
        await invited(owner)
        refused = await api.browser().post(LINK, {"email": ANN})
        assert refused.refused[:2] == (409, "CONFLICT")
        await fetch(store, CHANNEL)
        assert (await api.browser().post(LINK, {"email": ANN})).status == 202
    async with replica(store) as api:
        # A channel is not enough: there has to be a mail server.
        assert (await api.browser().post(LINK, {"email": ANN})).status == 409


async def test_a_mail_that_the_server_refuses_is_counted_and_the_mailer_goes_on(store: Database) -> None:
    async with mailing(store) as (api, _):
        owner = await api.owner()
        await fetch(store, CHANNEL)
        await invited(owner, "nobody@example.org")
        await invited(owner)
        for email in ("nobody@example.org", ANN):
            await api.browser().post(LINK, {"email": email})
        await worked_off(api)
        tally = mail_of(api).tally
        assert (tally.mailed, tally.failed) == (1, 1)


# --- the refused sign-up still tells nothing --------------------------------------------------------------


async def test_a_closed_instance_refuses_invited_and_other_addresses_alike(api: Replica) -> None:
    owner = await api.owner()
    await owner.put(POLICY, {"mode": "invite"})
    await invited(owner)
    bodies = [(await api.browser().sign_up(email)).refused for email in (ANN, "bob@example.org")]
    assert bodies == [REFUSED, REFUSED]
