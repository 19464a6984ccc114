"""Invitations as pages: offered after sign-in, accepted with the link, and the link by mail."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from svc.application.invitation_mail import SmtpInvitationMail
from svc.store.postgres.database import Database
from tests.front.api.test_accounts import fetch
from tests.front.api.test_invitations import CHANNEL
from tests.front.people import ORG, PASSWORD, Replica, replica
from tests.web.test_pages import heading
from tests.web.visitor import BASE, Seen, Visitor

ANN = "ann@example.org"


async def link_of(owner: Visitor) -> str:
    """The path of the link of a new invitation, as the page shows it."""
    made = await owner.post(BASE + "/settings/people/invite", {"email": ANN, "role": "admin"})
    link = re.search(r"(/signup\?invitation=[A-Za-z0-9_-]+)", made.text)
    assert link is not None
    return link[1]


async def left(here: Replica) -> Visitor:
    """Somebody with an account who belongs nowhere, signed out."""
    ann = Visitor.of(here)
    assert (await ann.sign_up(ANN)).status == 303
    await fetch(here.database, "delete from membership where role <> 'owner'")
    await ann.post("/logout")
    return ann


async def sign_in(visitor: Visitor, going: str = "/") -> Seen:
    return await visitor.post("/login", {"email": ANN, "password": PASSWORD, "next": going})


async def test_who_signs_in_is_offered_their_invitation_and_accepts_it_with_the_link(
    here: Replica, owner: Visitor
) -> None:
    ann = await left(here)
    link = await link_of(owner)
    assert (await sign_in(ann)).location == "/invitation"
    page = await ann.get("/invitation")
    assert heading(page) == "owner@example.org invited you to Default as admin"
    assert "open the link from the invitation" in page.text
    assert ">Accept<" not in page.text
    refused = await ann.post("/invitation", {"answer": "accept"})
    assert (refused.status, "it proves that the address is yours" in refused.text) == (403, True)
    page = await ann.get(link)
    secret = link.partition("=")[2]
    assert f'name="invitation" value="{secret}"' in page.text
    assert page.headers["cache-control"] == "no-store"
    assert (await ann.post("/invitation", {"answer": "accept", "invitation": secret})).location == "/"
    assert (await ann.get(BASE + "/settings/people")).status == 200
    assert (await ann.get("/invitation")).location == "/"


async def test_the_link_of_somebody_with_an_account_leads_over_the_sign_in_back_to_itself(
    here: Replica, owner: Visitor
) -> None:
    ann = await left(here)
    link = await link_of(owner)
    page = await ann.get(link)
    led = re.search(r'href="(/login\?next=[^"]+)"', page.text)
    assert led is not None
    form = await ann.get(led[1].replace("&amp;", "&"))
    going = re.search(r'name="next" value="([^"]+)"', form.text)
    assert going is not None
    assert going[1] == link
    assert (await sign_in(ann, going[1])).location == link


async def test_an_invitation_is_declined_on_its_page(here: Replica, owner: Visitor) -> None:
    ann = await left(here)
    await link_of(owner)
    await sign_in(ann)
    assert "/invitation" in (await ann.get("/account")).text
    await ann.post("/invitation", {"answer": "decline"})
    assert await fetch(here.database, "select from invitation") == []


async def test_a_link_of_another_address_says_so(here: Replica, owner: Visitor) -> None:
    link = await link_of(owner)
    assert heading(await owner.get(link)) == "This link is not for owner@example.org"


@pytest.mark.parametrize("mode", ["open", "invite"])
async def test_a_refused_sign_up_offers_to_mail_the_link(store: Database, mode: str) -> None:
    async with replica(store, SVC_SMTP_URL="smtp://mail.example.org") as here:
        api, owner, ann = here.browser(), Visitor.of(here), Visitor.of(here)
        await owner.sign_up()
        await api.sign_in("owner@example.org")
        await api.put(ORG + "/signup-policy", {"mode": mode, "domains": []})
        await fetch(store, CHANNEL)
        await link_of(owner)
        refused = await ann.sign_up(ANN)
        assert (refused.status, "Send me the link" in refused.text) == (403, True)
        assert "The rule" not in refused.text or mode == "invite"
        asked: dict[str, Any] = {"email": ANN}
        assert heading(await ann.post("/invitation/link", asked)) == "Look into your mail"
        mail = cast(SmtpInvitationMail, here.means.invitation_mail)
        assert mail.receive.receive_nowait() == ANN
