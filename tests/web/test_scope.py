"""Who may open what: every page and every form, by everybody there is. A new page without a row fails."""

from __future__ import annotations

import re
from typing import Final, Literal

from svc.store.postgres.database import Connection, Database
from svc.web.shell.page import PROJECT
from svc.web.table import PAGES
from tests.front.people import Replica
from tests.store.detection.detecting import opened, seen
from tests.web.test_pages import fill
from tests.web.test_triage import invited
from tests.web.visitor import BASE, Seen, Visitor

Level = Literal["anybody", "signed in", "viewer", "member", "admin"]

#: What each page and form takes, by its method and its path below the project's.
ROWS: Final[dict[str, Level]] = {
    "GET /": "signed in",
    "GET /login": "anybody",
    "POST /login": "anybody",
    "GET /signup": "anybody",
    "POST /signup": "anybody",
    "POST /logout": "anybody",
    "GET /oauth/authorize": "signed in",
    "POST /oauth/authorize": "signed in",
    "GET /invitation": "signed in",
    "POST /invitation": "signed in",
    "POST /invitation/link": "anybody",
    "GET /account": "signed in",
    "POST /account/look": "signed in",
    "POST /account/password": "signed in",
    "POST /account/session": "signed in",
    "POST /account/sessions": "signed in",
    "GET …": "viewer",
    "GET …/": "viewer",
    "GET …/go": "viewer",
    "GET …/pulse": "viewer",
    "GET …/connect": "viewer",
    "GET …/connect/lights": "viewer",
    "POST …/connect/key": "member",
    "POST …/connect/sample": "member",
    "POST …/connect/demo": "member",
    "GET …/triage": "viewer",
    "GET …/triage/pane": "viewer",
    "GET …/cases/{ref}": "viewer",
    "POST …/cases/{ref}/mute": "member",
    "POST …/cases/{ref}/unmute": "member",
    "POST …/cases/{ref}/resolve": "member",
    "POST …/cases/{ref}/absorb": "member",
    "POST …/cases/{ref}/reject": "member",
    "POST …/cases/{ref}/reopen": "member",
    "POST …/cases/{ref}/analyse": "member",
    "POST …/cases/{ref}/agent": "member",
    "GET …/cases/{ref}/agent/part": "viewer",
    "POST …/findings/{id}/agent": "member",
    "GET …/findings/{id}/agent/part": "viewer",
    "POST …/agent-runs/{id}/cancel": "member",
    "GET …/findings/{id}": "viewer",
    "GET …/findings/{id}/statistic": "viewer",
    "POST …/findings/{id}/say": "member",
    "POST …/findings/{id}/reopen": "member",
    "GET …/detectors": "viewer",
    "GET …/detectors/{name}": "viewer",
    "POST …/detectors/call-sites": "member",
    "POST …/detectors/marks/{mark}": "member",
    "POST …/detectors/{name}/switch": "member",
    "POST …/detectors/{name}/tuning": "member",
    "POST …/detectors/{name}/backtest": "member",
    "GET …/rca/{id}": "viewer",
    "GET …/traces": "viewer",
    "GET …/graph": "viewer",
    "GET …/views": "viewer",
    "POST …/traces/views": "member",
    "POST …/traces/views/forget": "member",
    "GET …/feedback": "viewer",
    "POST …/feedback/better": "member",
    "POST …/feedback/bad": "member",
    "GET …/sets": "viewer",
    "GET …/sets/{setId}": "viewer",
    "GET …/sets/{setId}/export": "viewer",
    "POST …/sets/add": "member",
    "POST …/sets/note": "member",
    "POST …/sets/remove": "member",
    "POST …/sets/forget": "member",
    "POST …/feedback": "member",
    "POST …/feedback/forget": "member",
    # Kept in a cookie of one's own.
    "POST …/traces/columns": "viewer",
    "GET …/traces/rows": "viewer",
    "GET …/traces/drawing": "viewer",
    "GET …/traces/facets": "viewer",
    "GET …/traces/rail": "viewer",
    "GET …/traces/{traceId}": "viewer",
    "GET …/traces/compare": "viewer",
    "GET …/traces/slowest": "viewer",
    "GET …/traces/{traceId}/top": "viewer",
    "GET …/traces/{traceId}/skeleton": "viewer",
    "GET …/traces/{traceId}/conversation": "viewer",
    "GET …/traces/{traceId}/previews": "viewer",
    "GET …/traces/{traceId}/find": "viewer",
    "GET …/traces/{traceId}/explain": "viewer",
    "GET …/traces/{traceId}/spans/{spanId}": "viewer",
    "GET …/traces/{traceId}/spans/{spanId}/text": "viewer",
    "GET …/traces/{traceId}/spans/{spanId}/file": "viewer",
    "GET …/traces/{traceId}/export": "viewer",
    "GET …/sessions": "viewer",
    "GET …/session": "viewer",
    "GET …/first-look": "viewer",
    "GET …/vitals": "viewer",
    "GET …/overview": "viewer",
    "GET …/user": "viewer",
    "GET …/users": "viewer",
    "GET …/overview/csv": "viewer",
    "GET …/vitals/{what}": "viewer",
    "GET …/explore": "viewer",
    "POST …/explore/keep": "member",
    "POST …/overview/charts/rename": "member",
    "POST …/overview/charts/move": "member",
    "POST …/overview/charts/remove": "member",
    "GET …/compare": "viewer",
    "GET …/prices": "viewer",
    "POST …/prices": "admin",
    "POST …/prices/remove": "admin",
    "GET …/prices/reconcile": "viewer",
    # Changes nothing.
    "POST …/prices/reconcile": "viewer",
    "GET …/settings": "viewer",
    "GET …/settings/keys": "viewer",
    "POST …/settings/keys": "member",
    "POST …/settings/keys/rotate": "member",
    "POST …/settings/keys/revoke": "member",
    "GET …/settings/mcp": "viewer",
    "POST …/settings/mcp": "member",
    "POST …/settings/mcp/revoke": "member",
    "POST …/settings/mcp/disconnect": "member",
    "GET …/settings/audit": "viewer",
    "GET …/settings/people": "viewer",
    "POST …/settings/people/invite": "admin",
    "POST …/settings/people/withdraw": "admin",
    "POST …/settings/people/change": "admin",
    # Everybody may leave; taking somebody else out is the handler's to refuse.
    "POST …/settings/people/remove": "viewer",
    "GET …/settings/people/{memberId}": "admin",
    "POST …/settings/people/{memberId}/access": "admin",
    "POST …/settings/people/organization": "admin",
    "POST …/settings/people/policy": "admin",
    "GET …/settings/project": "viewer",
    "GET …/settings/project/forecast": "viewer",
    "POST …/settings/project/name": "member",
    "POST …/settings/project/retention": "admin",
    "GET …/settings/project/rules": "viewer",
    "POST …/settings/project/rules/add": "admin",
    "POST …/settings/project/rules/remove": "admin",
    "POST …/settings/project/new": "member",
    "POST …/settings/project/delete": "admin",
    "GET …/settings/sources": "viewer",
    "POST …/settings/sources/key": "member",
    "GET …/settings/attributes": "viewer",
    "POST …/settings/attributes/promote": "member",
    "POST …/settings/attributes/rename": "member",
    "POST …/settings/attributes/hide": "member",
    "GET …/settings/dead-letters": "viewer",
    "GET …/settings/dead-letters/{id}": "viewer",
    "POST …/settings/dead-letters/replay": "member",
    "POST …/settings/dead-letters/discard": "member",
    "POST …/settings/dead-letters/fetch": "admin",
    "GET …/settings/masking": "viewer",
    "POST …/settings/masking": "admin",
    "GET …/settings/erasing": "viewer",
    "POST …/settings/erasing": "member",
    "GET …/settings/integrations": "viewer",
    "POST …/settings/integrations": "admin",
    "POST …/settings/integrations/test": "admin",
    "POST …/settings/integrations/remove": "admin",
    "GET …/settings/agents": "viewer",
    "POST …/settings/agents": "admin",
    "GET …/settings/notifications": "viewer",
    "GET …/settings/notifications/fired": "viewer",
    "GET …/settings/notifications/channel": "member",
    "POST …/settings/notifications/channel": "member",
    "POST …/settings/notifications/channel/test": "member",
    "POST …/settings/notifications/channel/rotate": "member",
    "POST …/settings/notifications/channel/remove": "member",
    "GET …/settings/notifications/rule": "member",
    "POST …/settings/notifications/rule": "member",
    "POST …/settings/notifications/rule/try": "member",
    "POST …/settings/notifications/rule/mute": "member",
    "POST …/settings/notifications/rule/remove": "member",
    "POST …/settings/notifications/replay": "member",
    "GET …/settings/taxonomy": "viewer",
    "POST …/settings/taxonomy": "member",
    "GET …/settings/health": "viewer",
}

RANKS: Final = ("viewer", "member", "admin", "owner")
#: Pages that show something once a case and traces are there; others may say that there is no such thing.
SHOWN: Final = {
    name
    for name in ROWS
    if name.startswith("GET …/")
    and not name.endswith(("/rail", "/text", "/previews", "/find", "/explain", "/conversation", "/go"))
    and not re.search(
        r"/rca/|/session$|/user$|/traces/compare$|/traces/slowest$|/dead-letters/|/spans/|/sets/|/people/",
        name,
    )
}


def rows() -> dict[str, tuple[str, str]]:
    """The app's own list: method and path by the name that a row has here."""
    return {f"{page.method} {page.path.replace(PROJECT, '…')}": (page.method, page.path) for page in PAGES}


def test_every_page_and_form_has_a_row() -> None:
    assert ROWS.keys() == rows().keys()


async def ask(visitor: Visitor, method: str, path: str, base: str = BASE) -> Seen:
    """One page or form, with ids that are there; a form is sent empty, which is a fault but no refusal."""
    filled = path.replace(PROJECT, base)
    known = {
        "ref": "C-1",
        "name": "tool_error",
        "traceId": f"{1:032x}",
        "spanId": f"{1:016x}",
        "what": "tools",
    }
    filled = re.sub(r"{(\w+)}", lambda match: known.get(match[1], visitor.cookies.get("_id", "1")), filled)
    return await (visitor.get(filled) if method == "GET" else visitor.post(filled))


async def finding_id(store: Database) -> str:
    found = await store.fetch("select id from finding")
    return str(found[0]["id"])


async def test_each_role_opens_what_it_may_and_nothing_else(here: Replica, store: Database) -> None:
    owner = Visitor.of(here)
    assert (await owner.sign_up()).status == 303
    await opened(store, seen(1))
    await fill(store, 3)
    people = {"owner": owner}
    for role in ("admin", "member", "viewer"):
        people[role] = await invited(here, owner, f"{role}@example.org", role)
    # Whoever asks for a finding names the one that there is.
    known = await finding_id(store)
    for name, (method, path) in rows().items():
        level = ROWS[name]
        if level in ("anybody", "signed in"):
            continue
        for rank in reversed(RANKS):
            visitor = people[rank]
            answer = await ask(visitor, method, path.replace("/findings/{id}", f"/findings/{known}"))
            about = (name, rank, answer.status)
            if RANKS.index(rank) < RANKS.index(level):
                assert answer.status == 403, about
                assert "needs the role" in answer.text, about
            else:
                assert answer.status in (200, 303, 400, 404, 409), about
                assert answer.status in (200, 303) or name not in SHOWN, about


async def test_strangers_and_people_of_other_organizations_open_nothing(
    here: Replica, store: Database
) -> None:
    owner = Visitor.of(here)
    assert (await owner.sign_up()).status == 303
    other = await invited(here, owner, "other@example.org", "owner")

    async def move(connection: Connection) -> None:
        org = await connection.fetchval(
            "insert into organization (slug, name) values ('other', 'Other') returning id"
        )
        await connection.execute(
            "insert into project (org_id, slug, name) values ($1, 'theirs', 'Theirs')", org
        )
        await connection.execute(
            "update membership set org_id = $1 where account_id ="
            " (select id from account where email = 'other@example.org')",
            org,
        )

    await store.run(move)
    theirs = "/orgs/other/projects/theirs"
    assert (await other.get(theirs + "/triage")).status == 200
    for name, (method, path) in rows().items():
        stranger = Visitor.of(here)
        answer = await ask(stranger, method, path)
        if ROWS[name] == "anybody":
            assert answer.status in (200, 303, 400, 401, 403), (name, answer.status)
            continue
        if method == "GET":
            assert answer.status == 303, (name, answer.status)
            assert answer.location.startswith("/login"), name
        else:
            assert answer.status == 401, (name, answer.status)
        if ROWS[name] == "signed in":
            continue
        # To somebody of another organization it does not exist, neither ours to them nor theirs to us.
        assert (await ask(other, method, path)).status == 404, name
        assert (await ask(owner, method, path, theirs)).status == 404, name


async def test_a_form_from_elsewhere_is_refused_and_a_key_opens_no_page(here: Replica) -> None:
    owner = Visitor.of(here)
    assert (await owner.sign_up()).status == 303
    token = await here.token("admin")
    owner.origin = "https://elsewhere.example"
    for name, (method, path) in rows().items():
        if method == "POST":
            answer = await ask(owner, method, path)
            assert answer.status == 403, (name, answer.status)
        elif ROWS[name] not in ("anybody", "signed in"):
            holder = Visitor.of(here)
            answer = await holder.get(path.replace(PROJECT, BASE), Authorization=f"Bearer {token}")
            assert answer.status in (303, 401), (name, answer.status)
