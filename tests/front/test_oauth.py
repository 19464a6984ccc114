"""Applications that connect by OAuth: the flow as it should be, and what somebody hostile would try."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import attrs
import msgspec
import pytest

from actors.keys import Grant
from protocol.tokens import MCP_PURPOSE, OAUTH_PURPOSE
from svc.domain.accounts.oauth import SCOPE
from svc.front.mcp.endpoint import Mcp
from svc.store.accounts import oauth as oauth_store
from svc.store.postgres.database import Database
from svc.web.account import authorize
from tests.front.mcp.test_protocol import messages
from tests.front.mcp.test_tokens import asked, endpoint
from tests.front.people import PASSWORD, PROJECT, Replica, replica
from tests.store.detection.detecting import execute
from tests.store.spans.test_writing import fetch
from tests.web.test_triage import invited
from tests.web.visitor import BASE, Seen, Visitor

CALLBACK = "https://claude.example/callback"
VERIFIER = "v" * 43
CHALLENGE = urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
RESOURCE = "http://localhost/mcp"
FORM = "application/x-www-form-urlencoded"


class Documents:
    """The web, as far as it describes applications."""

    def __init__(self) -> None:
        self.published: dict[str, Any] = {}

    async def read(self, url: str) -> bytes | None:
        document = self.published.get(url)
        return None if document is None else msgspec.json.encode(document)


@pytest.fixture
async def here(store: Database) -> AsyncIterator[Replica]:
    async with replica(store, SVC_MCP_OAUTH="true") as started:
        yield started


async def register(here: Replica, peer: str = "192.0.2.9", **metadata: Any) -> Any:
    body = {"client_name": "Claude", "redirect_uris": [CALLBACK], **metadata}
    return await here.browser(origin=None, peer=peer).post("/oauth/register", body)


async def client_id(here: Replica, **metadata: Any) -> str:
    answer = await register(here, **metadata)
    assert answer.status == 201, answer.body
    return str(answer.body["client_id"])


async def post(here: Replica, path: str, **form: str) -> Any:
    browser = here.browser(origin=None)
    return await browser.call("POST", path, urlencode(form).encode(), Content_Type=FORM)


async def token(here: Replica, **form: str) -> Any:
    return await post(here, "/oauth/token", **form)


def asking(client: str, **other: str) -> dict[str, str]:
    return {
        "client_id": client,
        "redirect_uri": CALLBACK,
        "response_type": "code",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "s t&te",
        "resource": RESOURCE,
        **other,
    }


async def consent(visitor: Visitor, asks: Mapping[str, str]) -> Seen:
    return await visitor.get("/oauth/authorize?" + urlencode(asks))


def fields(page: Seen) -> dict[str, str]:
    """What the form of the consent page would send."""
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    (project, *_others) = re.findall(r'name="project" value="(\d+)"', page.text)
    return {name: unescape(value) for name, value in hidden} | {"project": project}


async def allowed(visitor: Visitor, asks: Mapping[str, str], answer: str = "allow") -> dict[str, str]:
    """The fields that come back to the application."""
    page = await consent(visitor, asks)
    assert page.status == 200, page.text
    sent = await visitor.post("/oauth/authorize", {**fields(page), "answer": answer})
    assert sent.status == 303, sent.text
    assert sent.location.startswith(asks["redirect_uri"] + "?")
    return {name: values[0] for name, values in parse_qs(urlsplit(sent.location).query).items()}


async def signed_in(here: Replica) -> Visitor:
    owner = Visitor.of(here)
    assert (await owner.sign_up()).status == 303
    return owner


def redeeming(client: str, code: str, **other: str) -> dict[str, str]:
    return {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": client,
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
        "resource": RESOURCE,
        **other,
    }


@attrs.frozen
class Connected:
    """An application with its first tokens."""

    owner: Visitor
    client: str
    code: str
    access: str
    refresh: str


async def connected(here: Replica, owner: Visitor | None = None) -> Connected:
    owner = owner or await signed_in(here)
    client = await client_id(here)
    code = (await allowed(owner, asking(client)))["code"]
    answer = await token(here, **redeeming(client, code))
    assert answer.status == 200, answer.body
    return Connected(owner, client, code, answer.body["access_token"], answer.body["refresh_token"])


async def reads(here: Replica, access: str) -> bool:
    status, names = await asked(here, access)
    assert (status == 200) == bool(names)
    return status == 200


async def refresh(here: Replica, known: Connected, with_token: str | None = None, **other: str) -> Any:
    form = {"grant_type": "refresh_token", "refresh_token": with_token or known.refresh}
    return await token(here, **{**form, "client_id": known.client, **other})


# --- the flow ---------------------------------------------------------------------------------------------


async def test_an_application_learns_where_to_go_and_reads_one_project(here: Replica) -> None:
    handler: Mcp = attrs.evolve(endpoint(here), oauth=True)
    start, _end = await messages(handler, b"{}", host="localhost")
    challenge = dict(start["headers"])[b"www-authenticate"].decode()
    metadata_url = "http://localhost/.well-known/oauth-protected-resource/mcp"
    assert challenge == f'Bearer realm="svc-mcp", resource_metadata="{metadata_url}"'
    browser = here.browser(origin=None)
    for path in ("", "/mcp"):
        resource = (await browser.get("/.well-known/oauth-protected-resource" + path)).body
        assert (resource["resource"], resource["authorization_servers"]) == (RESOURCE, ["http://localhost"])
    for name in ("oauth-authorization-server", "openid-configuration"):
        server = (await browser.get("/.well-known/" + name)).body
        assert server["issuer"] == "http://localhost"
        assert server["code_challenge_methods_supported"] == ["S256"]
    known = await connected(here)
    assert await reads(here, known.access)
    holder = here.browser(key=known.access, origin=None)
    assert (await holder.get(PROJECT + "/cases")).status == 401
    assert (await holder.post("/v1/query/count", {"dataset": "spans"})).status == 401
    grant = await here.means.keys.verify(known.access, purposes=(OAUTH_PURPOSE,))
    assert isinstance(grant, Grant)
    assert await here.means.keys.verify(known.access, purposes=(MCP_PURPOSE,)) is None


async def test_the_answer_says_who_answers_and_gives_the_state_back(here: Replica) -> None:
    owner = await signed_in(here)
    client = await client_id(here)
    back = await allowed(owner, asking(client))
    assert (back["state"], back["iss"]) == ("s t&te", "http://localhost")
    back = await allowed(owner, asking(client), answer="deny")
    assert (back["error"], back["state"], "code" in back) == ("access_denied", "s t&te", False)


async def test_a_refresh_token_is_used_up_and_gives_new_tokens(here: Replica) -> None:
    known = await connected(here)
    answer = (await refresh(here, known)).body
    assert {answer["access_token"], answer["refresh_token"]}.isdisjoint({known.access, known.refresh})
    assert (answer["scope"], answer["expires_in"], answer["token_type"]) == (SCOPE, 3600, "Bearer")
    assert await reads(here, answer["access_token"])


async def test_no_code_and_no_token_is_stored_as_it_is(here: Replica) -> None:
    known = await connected(here)
    for table in ("oauth_grant", "oauth_refresh", "api_key", "audit_row"):
        (row,) = await fetch(here.database, f"select string_agg(t::text, ' ') as everything from {table} t")
        for secret in (known.code, known.refresh, known.access):
            assert secret not in row["everything"]


async def test_what_is_not_signed_in_is_led_to_the_form_and_back(here: Replica) -> None:
    await signed_in(here)
    client = await client_id(here)
    answer = await consent(Visitor.of(here), asking(client))
    assert answer.status == 303
    assert answer.location.startswith("/login?next=/oauth/authorize%3F")


# --- what ends it -----------------------------------------------------------------------------------------


async def test_a_stolen_code_without_the_verifier_ends_the_grant(here: Replica) -> None:
    owner, client = await signed_in(here), await client_id(here)
    code = (await allowed(owner, asking(client)))["code"]
    stolen = await token(here, **redeeming(client, code, code_verifier="w" * 43))
    assert (stolen.status, stolen.body["error"]) == (400, "invalid_grant")
    assert (await token(here, **redeeming(client, code))).body["error"] == "invalid_grant"


@pytest.mark.parametrize(
    "other",
    [
        {"redirect_uri": CALLBACK + "/other"},
        {"client_id": "another"},
        {"resource": "https://other.example/mcp"},
    ],
    ids=str,
)
async def test_a_code_is_good_for_nobody_else_and_nothing_else(here: Replica, other: dict[str, str]) -> None:
    owner, client = await signed_in(here), await client_id(here)
    code = (await allowed(owner, asking(client)))["code"]
    answer = await token(here, **{**redeeming(client, code), **other})
    assert (answer.status, answer.body["error"]) == (400, "invalid_grant")


async def test_a_code_that_is_replayed_ends_the_whole_grant(here: Replica) -> None:
    known = await connected(here)
    assert await reads(here, known.access)
    replayed = await token(here, **redeeming(known.client, known.code))
    assert (replayed.status, replayed.body["error"]) == (400, "invalid_grant")
    assert not await reads(here, known.access)
    assert (await refresh(here, known)).status == 400


async def test_a_code_is_over_after_its_minute(here: Replica) -> None:
    owner, client = await signed_in(here), await client_id(here)
    code = (await allowed(owner, asking(client)))["code"]
    await execute(here.database, "update oauth_grant set code_expires_at = now() - interval '1 second'")
    assert (await token(here, **redeeming(client, code))).body["error"] == "invalid_grant"


async def test_a_refresh_token_that_is_replayed_ends_the_whole_grant(here: Replica) -> None:
    known = await connected(here)
    newer = (await refresh(here, known)).body
    assert (await refresh(here, known)).body["error"] == "invalid_grant"
    assert not await reads(here, newer["access_token"])
    assert not await reads(here, known.access)
    assert (await refresh(here, known, newer["refresh_token"])).status == 400
    actions = await fetch(here.database, "select action from audit_row where subject_kind = 'oauth grant'")
    assert [row["action"] for row in actions] == ["oauth.allow", "oauth.end"]


async def test_a_refresh_token_in_other_hands_ends_the_grant(here: Replica) -> None:
    known = await connected(here)
    assert (await refresh(here, known, client_id="another")).status == 400
    assert not await reads(here, known.access)


async def test_an_application_gives_back_what_it_has(here: Replica) -> None:
    owner = await signed_in(here)
    for name in ("access", "refresh"):
        known = await connected(here, owner)
        given_back = getattr(known, name)
        # Nobody ends what belongs to another application, and all hear the same.
        assert (await post(here, "/oauth/revoke", token=given_back, client_id="another")).status == 200
        assert await reads(here, known.access)
        assert (await post(here, "/oauth/revoke", token=given_back, client_id=known.client)).status == 200
        assert not await reads(here, known.access)
        assert (await refresh(here, known)).status == 400


async def test_a_key_that_somebody_made_is_not_given_back(here: Replica) -> None:
    known, key = await connected(here), await here.token("admin")
    assert (await post(here, "/oauth/revoke", token=key, client_id=known.client)).status == 200
    assert await reads(here, key)


async def test_settings_list_what_is_connected_and_end_it(here: Replica) -> None:
    known = await connected(here)
    page = await known.owner.get(BASE + "/settings/mcp")
    assert "1 application reads this project" in page.text
    assert "claude.example" in page.text
    (grant_id,) = re.findall(r'disconnect"><input type="hidden" name="id" value="([^"]+)"', page.text)
    viewer = await invited(here, known.owner, "viewer@example.org", "viewer")
    assert (await viewer.post(BASE + "/settings/mcp/disconnect", {"id": grant_id})).status == 403
    assert await reads(here, known.access)
    assert (await known.owner.post(BASE + "/settings/mcp/disconnect", {"id": grant_id})).status == 303
    assert not await reads(here, known.access)
    assert "claude.example" not in (await known.owner.get(BASE + "/settings/mcp")).text


async def over(here: Replica, known: Connected) -> None:
    """The grant is over. Its token is refused once the notice of the commit has come."""
    while await reads(here, known.access):
        await here.verdicts.changed.wait()
    assert (await refresh(here, known)).status == 400


async def test_a_new_password_ends_what_was_allowed(here: Replica) -> None:
    known = await connected(here)
    owner = here.browser()
    assert (await owner.sign_in("owner@example.org")).status == 200
    change = {"current_password": PASSWORD, "new_password": "another horse battery"}
    assert (await owner.post("/auth/password", change)).status == 200
    await over(here, known)


@pytest.mark.parametrize("becomes", ["viewer", None])
async def test_who_may_no_longer_allow_it_has_it_ended(here: Replica, becomes: str | None) -> None:
    owner = await signed_in(here)
    member = await invited(here, owner, "member@example.org", "member")
    known = await connected(here, member)
    (row,) = await fetch(here.database, "select id::text from account where email like 'member%'")
    form = {"id": row["id"], "role": becomes or "", "account": row["id"]}
    browser = here.browser()
    await browser.sign_in("owner@example.org")
    path = f"/api/orgs/default/members/{form['id']}"
    answer = await (browser.patch(path, {"role": becomes}) if becomes else browser.delete(path))
    assert answer.status == 200, answer.body
    await over(here, known)


async def test_who_is_limited_to_projects_lets_an_application_read_those_they_are_a_member_of(
    here: Replica,
) -> None:
    await signed_in(here)
    browser = here.browser()
    await browser.sign_in("owner@example.org")
    org = "/api/orgs/default"
    for name in ("ours", "theirs", "watched"):
        await browser.post(org + "/projects", {"name": name})
    projects = {"ours": "member", "watched": "viewer"}
    invitation = {"email": "guest@example.org", "role": "none", "projects": projects}
    secret = (await browser.post(org + "/invitations", invitation)).data["secret"]
    guest = Visitor.of(here)
    assert (await guest.sign_up("guest@example.org", invitation=secret)).status == 303
    client = await client_id(here)
    page = await consent(guest, asking(client))
    offered = re.findall(r'name="project" value="(\d+)"', page.text)
    ids = {row["slug"]: str(row["id"]) for row in await fetch(here.database, "select id, slug from project")}
    assert offered == [ids["ours"]]
    for slug in ("theirs", "watched", "default"):
        refused = await guest.post(
            "/oauth/authorize", {**fields(page), "project": ids[slug], "answer": "allow"}
        )
        assert refused.status == 400
    known = await connected(here, guest)
    assert await reads(here, known.access)
    (row,) = await fetch(here.database, "select id::text from account where email like 'guest%'")
    watching = {"role": "none", "projects": {"ours": "viewer"}}
    assert (await browser.patch(f"{org}/members/{row['id']}", watching)).status == 200
    # Evicted in the call itself: no notice is waited for.
    assert not await reads(here, known.access)
    assert (await refresh(here, known)).status == 400


async def test_a_deleted_project_ends_it(here: Replica) -> None:
    known = await connected(here)
    await execute(here.database, "update project set deleted_at = now()")
    assert (await refresh(here, known)).status == 400


# --- what is never put to anybody -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"client_id": "nobody"}, authorize.UNKNOWN_CLIENT),
        ({"redirect_uri": "https://evil.example/"}, authorize.FOREIGN_REDIRECT),
        ({"redirect_uri": CALLBACK + "/"}, authorize.FOREIGN_REDIRECT),
        ({"redirect_uri": ""}, authorize.FOREIGN_REDIRECT),
        ({"response_type": "token"}, authorize.NO_CODE),
        ({"code_challenge": ""}, authorize.NO_CHALLENGE),
        ({"code_challenge_method": "plain"}, authorize.NO_CHALLENGE),
        ({"resource": "https://other.example/mcp"}, authorize.FOREIGN_RESOURCE),
        ({"state": "s" * 2001}, authorize.LONG_STATE),
    ],
    ids=str,
)
async def test_what_is_wrong_is_said_on_a_page_and_leads_nowhere(
    here: Replica, other: dict[str, str], reason: str
) -> None:
    owner, client = await signed_in(here), await client_id(here)
    asks = {**asking(client), **other}
    for answer in (
        await consent(owner, asks),
        await owner.post("/oauth/authorize", {**asks, "project": "1", "answer": "allow"}),
        await owner.post("/oauth/authorize", {**asks, "answer": "deny"}),
    ):
        assert (answer.status, "location" in answer.headers) == (400, False)
        assert reason in unescape(answer.text)
    assert await fetch(here.database, "select from oauth_grant") == []


async def test_a_viewer_may_let_nobody_in(here: Replica) -> None:
    owner, client = await signed_in(here), await client_id(here)
    viewer = await invited(here, owner, "viewer@example.org", "viewer")
    page = await consent(viewer, asking(client))
    assert "that needs the role member, admin or owner" in page.text
    forged = await viewer.post("/oauth/authorize", {**asking(client), "project": "1", "answer": "allow"})
    assert (forged.status, "location" in forged.headers) == (400, False)
    assert await fetch(here.database, "select from oauth_grant") == []


async def test_consent_is_given_on_our_page_alone_and_in_no_frame(here: Replica) -> None:
    owner, client = await signed_in(here), await client_id(here)
    page = await consent(owner, asking(client))
    assert page.headers["x-frame-options"] == "DENY"
    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    # Browsers hold it against the redirect to the application and against those that follow.
    assert "form-action 'self' https: http:" in policy
    assert page.headers["cache-control"] == "no-store"
    for origin in ("https://evil.example", None):
        owner.origin = origin
        forged = await owner.post("/oauth/authorize", {**fields(page), "answer": "allow"})
        assert (forged.status, "location" in forged.headers) == (403, False)


async def test_registrations_are_bounded_by_place_and_in_all(
    here: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        assert (await register(here)).status == 201
    refused = await register(here)
    assert (refused.status, refused.body["error"]) == (429, "slow_down")
    assert int(refused.headers["retry-after"]) > 0
    monkeypatch.setattr(oauth_store, "CLIENTS_BOUND", 21)
    assert (await register(here, peer="198.51.100.1")).status == 201
    assert (await register(here, peer="198.51.100.2")).status == 503
    # Those that nobody let in make room after a day.
    await execute(here.database, "update oauth_client set made_at = now() - interval '25 hours'")
    assert (await register(here, peer="198.51.100.3")).status == 201
    assert len(await fetch(here.database, "select from oauth_client")) == 1


@pytest.mark.parametrize(
    "uri",
    [
        "http://evil.example/",
        "javascript:alert(1)",
        "data:text/html,x",
        "https://a@b.example/",
        "https://b.example/#f",
        "ftp://b.example/",
    ],
)
async def test_an_address_that_no_application_has_is_not_registered(here: Replica, uri: str) -> None:
    refused = await register(here, redirect_uris=[CALLBACK, uri])
    assert (refused.status, refused.body["error"]) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"redirect_uris": []}', b'{"redirect_uris": [7]}', b"\xff"]
)
async def test_what_is_no_registration_is_refused(here: Replica, body: bytes) -> None:
    refused = await here.browser(origin=None).post("/oauth/register", body)
    assert (refused.status, refused.body["error"]) == (400, "invalid_client_metadata")


async def test_a_request_for_tokens_that_says_too_little_or_too_much_is_refused(here: Replica) -> None:
    assert (await token(here, grant_type="password")).body["error"] == "unsupported_grant_type"
    assert (await token(here, grant_type="authorization_code")).body["error"] == "invalid_request"
    browser = here.browser(origin=None)
    twice = b"grant_type=refresh_token&client_id=a&client_id=b&refresh_token=c"
    answer = await browser.call("POST", "/oauth/token", twice, Content_Type=FORM)
    assert (answer.status, answer.body["error"]) == (400, "invalid_request")
    assert answer.headers["cache-control"] == "no-store"


# --- descriptions at an address ---------------------------------------------------------------------------


async def test_an_application_may_be_described_at_its_address(store: Database) -> None:
    documents, url = Documents(), "https://app.example/oauth/client.json"
    async with replica(store, documents=documents, SVC_MCP_OAUTH="true") as here:
        owner = await signed_in(here)
        good = {"client_id": url, "client_name": "App", "redirect_uris": [CALLBACK]}
        documents.published[url] = good
        page = await consent(owner, asking(url))
        assert "Let App read a project?" in page.text
        assert "app.example" in page.text
        code = (await allowed(owner, asking(url)))["code"]
        assert (await token(here, **redeeming(url, code))).status == 200
        for wrong in (
            {**good, "client_id": url + "x"},
            {**good, "redirect_uris": ["javascript:1"]},
            {**good, "client_secret": "s"},
            [],
            None,
        ):
            documents.published[url] = wrong
            refused = await consent(owner, asking(url))
            assert (refused.status, "location" in refused.headers) == (400, False)
            assert authorize.UNREAD_CLIENT in refused.text


# --- off --------------------------------------------------------------------------------------------------


async def test_without_oauth_nothing_invites_an_application_to_sign_in(store: Database) -> None:
    async with replica(store) as here:
        owner = await signed_in(here)
        browser = here.browser(origin=None)
        for path in (
            "oauth-protected-resource",
            "oauth-protected-resource/mcp",
            "oauth-authorization-server",
        ):
            assert (await browser.get("/.well-known/" + path)).status == 404
        assert (await register(here)).status == 404
        assert (await consent(owner, asking("any"))).status == 404
        start, _end = await messages(endpoint(here), b"{}", host="localhost")
        assert dict(start["headers"])[b"www-authenticate"] == b'Bearer realm="svc-mcp"'
