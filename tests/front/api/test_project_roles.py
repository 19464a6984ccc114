"""Roles in single projects: whoever has no role in a project gets from every route what a stranger gets."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import urlencode

import attrs
import pytest

from actors.keys import Grant
from svc.front.api.table import ROUTES
from svc.web.table import PAGES
from tests.front.api.test_accounts import fetch
from tests.front.people import ORG, Browser, Replica

NO_SUCH_PROJECT = (404, "NOT_FOUND", "no such project")
UNKNOWN_ID: Final = "00000000-0000-0000-0000-000000000000"
#: The project that nobody limited to `mine` may hear of.
FOREIGN: Final = "foreign"
#: How it and its rows are called.
SECRET: Final = "Zanzibar"
#: In a path, what names no project.
PLACEHOLDERS: Final = re.compile(r"{(?!orgSlug|projectSlug)\w+}")
#: Routes of an organization that everybody who belongs to it may call.
BELONGING: Final = {("GET", ORG), ("GET", ORG + "/projects"), ("DELETE", ORG + f"/members/{UNKNOWN_ID}")}


async def two_projects(owner: Browser) -> None:
    for slug, name in (("mine", "Mine"), (FOREIGN, SECRET)):
        assert (await owner.post(ORG + "/projects", {"name": name, "slug": slug})).status == 201
    key = {"name": SECRET, "scope": "write"}
    assert (await owner.post(ORG + f"/projects/{FOREIGN}/api-keys", key)).status == 201


async def limited(api: Replica, owner: Browser, role: str = "viewer", *projects: str) -> Browser:
    """Somebody who was invited to single projects."""
    body = {
        "email": f"{role}@example.org",
        "role": "none",
        "projects": dict.fromkeys(projects or ("mine",), role),
    }
    invited = await owner.post(ORG + "/invitations", body)
    assert (invited.status, invited.data["projects"]) == (201, body["projects"]), invited.body
    browser = api.browser()
    assert (await browser.sign_up(f"{role}@example.org", invitation=invited.data["secret"])).status == 201
    return browser


async def id_of(owner: Browser, email: str) -> str:
    rows = (await owner.get(ORG + "/members")).data
    return str(next(row["id"] for row in rows if row["email"] == email))


@attrs.frozen
class Seen:
    """An answer, without the slug it was asked with."""

    status: int
    text: str


async def seen(browser: Browser, method: str, path: str, slug: str, *, form: bool = False) -> Seen:
    filled = PLACEHOLDERS.sub(UNKNOWN_ID, path).format(orgSlug="default", projectSlug=slug)
    headers = {"Origin": browser.origin or "", "Cookie": f"{browser.cookie_name}={browser.cookie}"}
    sent: dict[str, Any] = {}
    if form:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        sent["data"] = urlencode({"q": "x"}).encode()
    elif method in ("POST", "PUT", "PATCH"):
        sent["json"] = {}
    response = await browser.client.open(
        filled, method=method, headers=headers, scope_base={"client": (browser.peer, 1)}, **sent
    )
    raw = await response.get_data(as_text=False)
    return Seen(response.status_code, raw.decode("utf-8", "replace").replace(slug, "SLUG"))


IN_PROJECTS: Final = [
    *((route.method, route.path, False) for route in ROUTES if "{projectSlug}" in route.path),
    *((page.method, page.path, page.method == "POST") for page in PAGES if "{projectSlug}" in page.path),
]


@pytest.mark.parametrize("role", ["viewer", "member"])
async def test_every_route_of_another_project_answers_as_to_a_stranger(api: Replica, role: str) -> None:
    owner = await api.owner()
    await two_projects(owner)
    person = await limited(api, owner, role)
    assert len(IN_PROJECTS) > 150
    for method, path, form in IN_PROJECTS:
        # The origin rule comes before: a form is sent from a page of ours.
        foreign = await seen(person, method, path, FOREIGN, form=form)
        missing = await seen(person, method, path, "nowhere", form=form)
        assert (foreign.status, foreign.text) == (404, missing.text), (method, path, foreign.text[:300])
        assert SECRET not in foreign.text, (method, path)
    assert len((await owner.get(ORG + "/projects")).data) == 3


async def test_the_own_project_reads_as_to_a_viewer_of_the_organization_and_tells_of_no_other(
    api: Replica,
) -> None:
    owner = await api.owner()
    await two_projects(owner)
    viewer = await api.member("all@example.org", "viewer", owner)
    person = await limited(api, owner)
    of_org = {page.path for page in PAGES if page.of_org}
    for method, path, _form in IN_PROJECTS:
        if method != "GET":
            continue
        mine, theirs = await seen(person, "GET", path, "mine"), await seen(viewer, "GET", path, "mine")
        assert mine.status == (403 if path in of_org else theirs.status), (path, mine.text[:300])
        for hidden in (SECRET, f"projects/{FOREIGN}", "all@example.org"):
            assert hidden not in mine.text, (path, hidden)


async def test_a_member_of_one_project_changes_it_and_nothing_of_the_organization(api: Replica) -> None:
    owner = await api.owner()
    await two_projects(owner)
    person = await limited(api, owner, "member")
    made = await person.post(ORG + "/projects/mine/api-keys", {"name": "k", "scope": "query"})
    assert made.status == 201
    assert (await person.delete(ORG + f"/projects/mine/api-keys/{made.data['key']['id']}")).status == 200
    assert (await person.delete(ORG + "/projects/mine")).refused[:2] == (403, "FORBIDDEN")
    another = "/orgs/{orgSlug}/projects/{projectSlug}/settings/project/new"
    assert (await seen(person, "POST", another, "mine", form=True)).status == 403
    for route in ROUTES:
        if "{orgSlug}" not in route.path or "{projectSlug}" in route.path:
            continue
        path = PLACEHOLDERS.sub(UNKNOWN_ID, route.path).format(orgSlug="default")
        status = (await person.call(route.method, path, None if route.body is None else {})).status
        assert (status != 403) == ((route.method, path) in BELONGING) or route.method == "DELETE", path
        if route.method == "DELETE":
            assert status == 403, path
    assert [row["slug"] for row in (await person.get(ORG + "/projects")).data] == ["mine"]
    assert (await person.get(ORG)).data["role"] == "none"
    assert (await person.get("/auth/me")).data["organizations"] == [
        {"slug": "default", "name": "Default", "role": "none"}
    ]


async def test_a_viewer_of_the_organization_may_be_a_member_of_one_project(api: Replica) -> None:
    owner = await api.owner()
    await two_projects(owner)
    person = await api.member("eve@example.org", "viewer", owner)
    path = ORG + "/members/" + await id_of(owner, "eve@example.org")
    changed = await owner.patch(path, {"role": "viewer", "projects": {"mine": "member"}})
    assert changed.data["projects"] == {"mine": "member"}
    key = {"name": "k", "scope": "write"}
    assert (await person.post(ORG + "/projects/mine/api-keys", key)).status == 201
    assert (await person.post(ORG + f"/projects/{FOREIGN}/api-keys", key)).refused[:2] == (403, "FORBIDDEN")
    assert (await person.get(ORG + f"/projects/{FOREIGN}")).status == 200
    # A role in a project never counts for less than the one in the organization.
    await owner.patch(path, {"role": "member", "projects": {"mine": "viewer"}})
    assert (await person.post(ORG + "/projects/mine/api-keys", key)).status == 201
    # Without `projects`, those stay.
    assert (await owner.patch(path, {"role": "none"})).data["projects"] == {"mine": "viewer"}


async def test_a_role_that_is_taken_is_gone_on_the_next_request_with_keys_and_all(api: Replica) -> None:
    owner = await api.owner()
    await two_projects(owner)
    person = await limited(api, owner, "member", "mine", FOREIGN)
    path = ORG + "/members/" + await id_of(owner, "member@example.org")
    minted = []
    for slug in ("mine", FOREIGN):
        made = await person.post(ORG + f"/projects/{slug}/api-keys", {"name": "k", "scope": "admin"})
        minted.append(made.data["plaintext"])
    for token in minted:
        assert isinstance(await api.means.keys.verify(token), Grant)
    change = {"role": "none", "projects": {"mine": "member"}, "revoke_keys": True}
    assert (await owner.patch(path, change)).data["keys_revoked"] == 1
    assert (await person.get(ORG + f"/projects/{FOREIGN}")).refused == NO_SUCH_PROJECT
    assert (await person.get(ORG + "/projects/mine")).status == 200
    mine, foreign = [isinstance(await api.means.keys.verify(token), Grant) for token in minted]
    assert (mine, foreign) == (True, False)
    # Out of the organization, out of its projects.
    assert (await owner.delete(path)).status == 200
    assert (await person.get(ORG + "/projects/mine")).refused == (404, "NOT_FOUND", "no such organization")
    assert await fetch(api.database, "select from project_membership") == []


async def test_a_place_without_any_project_is_refused(api: Replica) -> None:
    owner = await api.owner()
    await two_projects(owner)
    await api.member("eve@example.org", "viewer", owner)
    path = ORG + "/members/" + await id_of(owner, "eve@example.org")
    refused = (400, "BAD_REQUEST", "the role none needs a role in at least one project (projects)")
    invitation = {"email": "x@example.org", "role": "none"}
    assert (await owner.patch(path, {"role": "none"})).refused == refused
    assert (await owner.patch(path, {"role": "none", "projects": {}})).refused == refused
    assert (await owner.post(ORG + "/invitations", invitation)).refused == refused
    nowhere = {"projects": {"nowhere": "viewer"}}
    assert (await owner.patch(path, {"role": "none", **nowhere})).refused == NO_SUCH_PROJECT
    assert (await owner.post(ORG + "/invitations", {**invitation, **nowhere})).refused == NO_SUCH_PROJECT
    # There is always an owner of the organization, whatever is held in projects.
    me = ORG + "/members/" + await id_of(owner, "owner@example.org")
    last = await owner.patch(me, {"role": "none", "projects": {"mine": "member"}})
    assert last.refused[:2] == (409, "CONFLICT")
    assert (await owner.patch(path, {"role": "viewer", "projects": {"mine": "admin"}})).status == 400


async def test_an_invitation_adds_to_what_an_account_has(api: Replica) -> None:
    owner = await api.owner()
    await two_projects(owner)
    person = await limited(api, owner)
    path = ORG + "/members/" + await id_of(owner, "viewer@example.org")
    # Invited before they were made a member again.
    assert (await owner.delete(path)).status == 200
    both = {"mine": "member", FOREIGN: "viewer"}
    body = {"email": "viewer@example.org", "role": "none", "projects": both}
    invited = await owner.post(ORG + "/invitations", body)
    assert [row["projects"] for row in (await owner.get(ORG + "/invitations")).data] == [both]
    assert (await person.get("/auth/me")).data["invitation"]["role"] == "none"
    accepted = await person.post("/auth/invitation/accept", {"invitation": invited.data["secret"]})
    assert accepted.status == 200, accepted.body
    [row] = [one for one in (await owner.get(ORG + "/members")).data if one["email"] == "viewer@example.org"]
    assert (row["role"], row["projects"]) == ("none", both)
    assert (await person.get(ORG + f"/projects/{FOREIGN}")).status == 200


async def test_the_audit_says_which_projects_an_ended_invitation_promised(api: Replica) -> None:
    owner = await api.owner()
    await two_projects(owner)
    both = {"mine": "member", FOREIGN: "viewer"}
    body = {"email": "guest@example.org", "role": "none", "projects": both}
    invited = await owner.post(ORG + "/invitations", body)
    assert (await owner.delete(ORG + f"/invitations/{invited.data['id']}")).status == 200
    invited = await owner.post(ORG + "/invitations", body)
    assert (await api.browser().sign_up(body["email"], invitation=invited.data["secret"])).status == 201
    plain = await owner.post(ORG + "/invitations", {"email": "x@example.org"})
    assert (await owner.delete(ORG + f"/invitations/{plain.data['id']}")).status == 200
    rows = await fetch(
        api.database,
        "select action, details::text from audit_row where action = any($1::text[]) order by id",
        ["invitation.withdraw", "invitation.accept"],
    )
    said = [(row["action"], json.loads(row["details"])) for row in rows]
    assert said == [
        ("invitation.withdraw", body),
        ("invitation.accept", body),
        ("invitation.withdraw", {"email": "x@example.org", "role": "member"}),
    ]


async def test_an_organization_without_roles_in_projects_says_nothing_of_them(api: Replica) -> None:
    owner = await api.owner()
    await api.member("eve@example.org", "viewer", owner)
    assert (await owner.post(ORG + "/invitations", {"email": "x@example.org"})).status == 201
    path = ORG + "/members/" + await id_of(owner, "eve@example.org")
    changed = await owner.patch(path, {"role": "member"})
    assert set(changed.data) == {"id", "email", "role", "created_at"}
    for row in (await owner.get(ORG + "/members")).data:
        assert set(row) == {"id", "email", "role", "created_at"}
    for row in (await owner.get(ORG + "/invitations")).data:
        assert "projects" not in row
    for row in (await owner.get(ORG + "/audit")).data["rows"]:
        assert not [name for name in row["details"] if "project" in name], row
