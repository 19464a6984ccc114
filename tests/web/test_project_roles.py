"""Roles in single projects on pages: given on People, obeyed by the switcher, the way in and every tab."""

from __future__ import annotations

import re

from svc.store.postgres.database import Database
from tests.front.people import Replica, process_view, replica
from tests.web.test_pages import heading
from tests.web.visitor import BASE, Seen, Visitor

PEOPLE = BASE + "/settings/people"
ALPHA = "/orgs/default/projects/alpha"


async def with_alpha(owner: Visitor) -> None:
    assert (await owner.post(BASE + "/settings/project/new", {"name": "Alpha"})).status == 303


def link_in(page: Seen) -> str:
    link = re.search(r"/signup\?invitation=([A-Za-z0-9_-]+)", page.text)
    assert link is not None, page.text
    return link[1]


async def guest_of_alpha(here: Replica, owner: Visitor) -> Visitor:
    """Somebody who was invited to one project by the form."""
    await with_alpha(owner)
    form = {"email": "guest@example.org", "role": "none", "project": ["default:", "alpha:viewer"]}
    made = await owner.post(PEOPLE + "/invite", form)
    assert 'none; alpha <span class="soft">viewer</span>' in made.text
    guest = Visitor.of(here)
    assert (await guest.sign_up("guest@example.org", invitation=link_in(made))).status == 303
    return guest


async def test_who_is_invited_to_one_project_sees_no_other(here: Replica, owner: Visitor) -> None:
    guest = await guest_of_alpha(here, owner)
    # Whatever was open last.
    guest.cookies["svc_last"] = "default/default"
    assert (await guest.get("/")).location == ALPHA + "/triage"
    page = await guest.get(ALPHA + "/settings/people")
    assert heading(page) == "Your roles"
    assert "owner@example.org" not in page.text
    assert f'href="{BASE}/triage"' not in page.text
    for tab in ("integrations", "health"):
        assert f"/settings/{tab}" not in page.text
        assert (await guest.get(f"{ALPHA}/settings/{tab}")).status == 403
    assert (await guest.get(BASE + "/pulse")).status == 404
    assert "Another project" not in (await guest.get(ALPHA + "/settings/project")).text


async def test_a_member_is_limited_to_projects_and_let_into_all_again(here: Replica, owner: Visitor) -> None:
    guest = await guest_of_alpha(here, owner)
    page = await owner.get(PEOPLE)
    found = re.search(r'href="([^"]+)">Change<span class="unseen"> roles of guest@example.org', page.text)
    assert found is not None
    access = await owner.get(found[1])
    assert heading(access) == "guest@example.org sees 1 project"
    assert '<option value="alpha:viewer" selected>' in access.text
    save = found[1] + "/access"
    assert (await guest.get(found[1].replace(BASE, ALPHA))).status == 403
    nothing = await owner.post(save, {"role": "none", "project": ["default:", "alpha:"]})
    assert nothing.status == 400
    assert "at least one project" in nothing.text
    moved = {"role": "none", "project": ["default:member", "alpha:"]}
    assert (await owner.post(save, moved)).status == 303
    assert (await guest.get(ALPHA + "/traces")).status == 404
    assert (await guest.post(BASE + "/connect/key")).status == 200
    assert (await owner.post(save, {"role": "viewer", "project": ["default:"]})).status == 303
    assert (await guest.get(ALPHA + "/traces")).status == 200
    assert (await guest.post(BASE + "/connect/key")).status == 403
    assert (await owner.get(f"{PEOPLE}/00000000-0000-0000-0000-000000000000")).status == 404


async def test_who_sees_one_project_is_shown_no_refusals_of_others(store: Database) -> None:
    refused = [{"status": 413, "cause": "too large", "message": "a secret of default", "count": 3}]
    async with replica(store, known=process_view(refused=lambda: refused)) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        guest = await guest_of_alpha(here, owner)
        for path in ("/connect", "/connect/lights"):
            assert "a secret of default" in (await owner.get(ALPHA + path)).text
            seen = await guest.get(ALPHA + path)
            assert heading(seen) == "Connect your application"
            assert "a secret of default" not in seen.text


async def test_who_has_no_project_left_is_told_whom_to_ask(here: Replica, owner: Visitor) -> None:
    guest = await guest_of_alpha(here, owner)
    assert (await owner.post(ALPHA + "/settings/project/delete", {"slug": "alpha"})).status == 303
    answer = await guest.get("/")
    assert answer.status == 404
    assert "role in no project" in answer.text
    assert (await guest.get(ALPHA + "/traces")).status == 404


async def test_one_project_asks_for_no_roles_of_its_own(owner: Visitor) -> None:
    page = await owner.get(PEOPLE)
    assert "In projects" not in page.text
    assert "Roles in single projects" not in page.text
