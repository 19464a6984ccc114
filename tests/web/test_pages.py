"""Pages as the server gives them: who may see one, what is said instead, and what stands on each."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from protocol.refusals import NOT_FOUND
from protocol.storage import Outage
from svc.domain.accounts.access import Role
from svc.front.otlp.intake import IntakeTally
from svc.front.otlp.lately import WRONG_PATH, wrong_path
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.reads.traces import trace_counts
from svc.web.connect.programs import EXAMPLES, PROGRAMS
from svc.web.shell.process_view import OwnerLink
from svc.web.shell.render import POLICY
from svc.web.traces import traces
from tests.front.people import ORG, PASSWORD, Replica, process_view, replica
from tests.store.settling import settle_all
from tests.store.spans.test_writing import Clock, one, rows, store_of
from tests.web.visitor import BASE, Seen, Visitor


async def fill(store: Database, number: int = 60, **more: Any) -> None:
    """So many traces of the last hours, settled; every third fails."""
    writer = store_of(store, Clock(now()))
    start = now() - timedelta(minutes=2)
    spans: list[Any] = []
    for at in range(number):
        attributes = {"session.id": f"s{at // 4}", "user.id": "u", "svc.call_site.id": "site", **more}
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.input_tokens": 100,
            **attributes,
        }
        common: dict[str, Any] = {
            "trace_id": (at + 1).to_bytes(16, "big"),
            "start": start - timedelta(minutes=at),
            "status_code": 2 if at % 3 == 0 else 0,
        }
        spans += (
            one(1, name=more.get("name", f"ask {at}"), attributes=attributes, **common),
            one(2, parent=1, name="chat", attributes=chat, took_s=0.5, **common),
        )
    await writer.write(rows(*spans))
    await settle_all(store)


def heading(seen: Seen) -> str:
    """The one h1."""
    found = re.findall(r"<h1[^>]*>(.*?)</h1>", seen.text, re.S)
    assert len(found) == 1, found
    return re.sub(r"<[^>]+>", "", found[0]).strip()


async def test_every_page_carries_the_policy_and_its_headers(owner: Visitor) -> None:
    for path in ("/account", BASE + "/traces", BASE + "/connect", BASE + "/nothing"):
        seen = await owner.get(path)
        assert seen.headers["content-security-policy"] == POLICY
        assert seen.headers["cross-origin-opener-policy"] == "same-origin"
        assert seen.headers["referrer-policy"] == "same-origin"
        assert seen.headers["content-type"] == "text/html; charset=utf-8"
        assert heading(seen)
    assert "unsafe" not in POLICY


async def test_a_page_that_has_not_changed_is_not_sent_again(owner: Visitor) -> None:
    await owner.get(BASE + "/traces?range=all")
    seen = await owner.get(BASE + "/traces?range=all")
    assert seen.headers["cache-control"] == "private, no-cache"
    again = await owner.get(BASE + "/pulse", If_None_Match=(await owner.get(BASE + "/pulse")).headers["etag"])
    assert (again.status, again.text) == (304, "")


async def test_pages_are_compressed_for_who_takes_it(owner: Visitor) -> None:
    seen = await owner.get(BASE + "/traces", Accept_Encoding="gzip, br")
    assert seen.headers["content-encoding"] == "gzip"
    assert int(seen.headers["content-length"]) < 40 * 1024


async def test_a_wrong_path_is_a_page_under_orgs_and_an_envelope_elsewhere(owner: Visitor) -> None:
    seen = await owner.get(BASE + "/nothing")
    assert seen.status == 404
    assert heading(seen) == "There is no such page"
    assert 'href="' + BASE + '/traces"' in seen.text
    for path in (
        "/orgs/nobody/projects/x/traces",
        "/orgs/x",
        BASE.replace("default/p", "other/p") + "/traces",
    ):
        seen = await owner.get(path)
        assert seen.status == 404
        assert heading(seen)
    elsewhere = await owner.get("/nothing")
    assert (elsewhere.status, elsewhere.headers["content-type"]) == (404, "application/json")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/logout", "POST"),
        ("PUT", "/login", "GET, POST"),
        ("PUT", "/", "GET"),
        ("DELETE", BASE + "/traces", "GET"),
        ("POST", BASE + "/traces", "GET"),
        ("GET", BASE + "/cases/C-1/reopen", "POST"),
        ("POST", BASE + "/nothing", None),
        ("DELETE", BASE + "/nothing", None),
    ],
)
async def test_a_wrong_method_or_path_among_pages_is_a_page_whatever_the_method(
    owner: Visitor, method: str, path: str, allowed: str | None
) -> None:
    seen = await owner.open(path, method)
    assert (seen.status, seen.headers.get("allow")) == (405 if allowed else 404, allowed)
    assert seen.headers["content-type"] == "text/html; charset=utf-8"
    assert heading(seen)


async def test_an_export_that_strays_among_pages_reads_no_page(owner: Visitor) -> None:
    sent = {"Content-Type": "application/x-protobuf"}
    for path, status in ((BASE + "/traces", 405), (BASE + "/v1/traces", 404), ("/", 404)):
        seen = await owner.open(path, "POST", **sent)
        assert (seen.status, seen.headers["content-type"]) == (status, "application/json")


async def test_a_static_file_that_is_not_there_is_said_so(owner: Visitor) -> None:
    seen = await owner.get("/static/x/y.js")
    assert (seen.status, seen.headers["content-type"]) == (404, "application/json")
    assert seen.body == NOT_FOUND.body()


async def test_whoever_is_signed_out_signs_in_and_comes_back(here: Replica, owner: Visitor) -> None:
    stranger = Visitor.of(here)
    sent = await stranger.get(BASE + "/traces?q=status:error&range=7d")
    assert sent.status == 303
    assert sent.location.startswith("/login?next=")
    form = await stranger.get(sent.location)
    assert heading(form) == "Sign in"
    back = re.search(r'name="next" value="([^"]*)"', form.text)
    assert back is not None
    answer = await stranger.post(
        "/login",
        {"email": "owner@example.org", "password": PASSWORD, "next": back[1].replace("&amp;", "&")},
    )
    assert (answer.status, answer.location) == (303, BASE + "/traces?q=status:error&range=7d")
    assert (await stranger.get(answer.location)).status == 200


async def test_a_fragment_for_whoever_is_signed_out_is_no_redirect(here: Replica) -> None:
    assert (await Visitor.of(here).get(BASE + "/traces/rows", X_Part="1")).status == 401


async def test_a_bearer_key_opens_no_page(here: Replica, owner: Visitor) -> None:
    key = await here.token("admin")
    seen = await Visitor.of(here).get(BASE + "/traces", Authorization=f"Bearer {key}")
    assert seen.status == 303


async def test_a_wrong_password_is_said_and_not_put_back(owner: Visitor, here: Replica) -> None:
    stranger = Visitor.of(here)
    answer = await stranger.post("/login", {"email": "owner@example.org", "password": "wrong password"})
    assert answer.status == 401
    assert "The address or the password is wrong." in answer.text
    assert "wrong password" not in answer.text
    assert 'value="owner@example.org"' in answer.text
    assert answer.headers["cache-control"] == "no-store"


async def test_a_common_password_is_refused_on_the_pages_in_the_words_of_the_api(
    here: Replica, owner: Visitor
) -> None:
    for answer in (
        await Visitor.of(here).post("/signup", {"email": "b@example.org", "password": "Password1"}),
        await owner.post("/account/password", {"current_password": PASSWORD, "new_password": "Password1"}),
    ):
        assert answer.status == 400
        assert "his password is one of the most common ones" in answer.text
        assert "Password1" not in answer.text


async def test_too_many_tries_say_the_seconds(store: Database) -> None:
    async with replica(store, SVC_AUTH_TRIES_PER_ADDRESS="1") as here:
        visitor = Visitor.of(here)
        await visitor.post("/login", {"email": "a@example.org", "password": "x"})
        answer = await visitor.post("/login", {"email": "a@example.org", "password": "x"})
        assert answer.status == 429
        assert answer.headers["retry-after"]
        assert re.search(r"Wait [\d,]+ seconds\.", answer.text)


async def test_a_form_from_elsewhere_does_nothing(here: Replica, owner: Visitor) -> None:
    owner.origin = "https://elsewhere.example"
    for path in ("/account/look", BASE + "/connect/key", "/logout"):
        seen = await owner.post(path, {"theme": "dark"})
        assert seen.status == 403
    owner.origin = "http://localhost"
    assert (await owner.get("/account")).status == 200


async def test_the_first_visit_leads_to_the_first_account(here: Replica) -> None:
    visitor = Visitor.of(here)
    assert (await visitor.get("/")).location == "/login"
    assert (await visitor.get("/login")).location == "/signup"
    assert "The first account owns the instance" in (await visitor.get("/signup")).text
    answer = await visitor.sign_up()
    assert answer.location == BASE + "/connect"
    assert (await visitor.get("/")).location == BASE + "/triage"


async def test_the_link_of_a_start_makes_an_owner_once_even_after_somebody_else(store: Database) -> None:
    link = OwnerLink(now)
    async with replica(store, known=process_view(owner_link=link)) as here:
        secret = link.make()
        stranger, operator, third = (Visitor.of(here) for _ in range(3))
        await stranger.sign_up("stranger@example.org")
        assert heading(await operator.get(f"/signup?owner={secret}")) == "Claim this instance"
        assert (await operator.sign_up("operator@example.org", owner=secret)).location == BASE + "/connect"
        assert "owner of Default" in (await operator.get("/account")).text
        assert "was used or has expired" in (await third.get(f"/signup?owner={secret}")).text
        await third.sign_up("third@example.org", owner=secret)
        assert "viewer of Default" in (await third.get("/account")).text


async def test_the_link_of_a_start_is_over_after_an_hour() -> None:
    at = [now()]
    link = OwnerLink(lambda: at[0])
    secret = link.make()
    assert link.opens(secret)
    at[0] += timedelta(minutes=61)
    assert not link.opens(secret)
    assert not link.opens("")


async def test_a_refused_sign_up_names_the_rule(here: Replica, owner: Visitor) -> None:
    api = here.browser()
    await api.sign_in("owner@example.org")
    assert (await api.put(ORG + "/signup-policy", {"mode": "invite", "domains": []})).status == 200
    stranger = Visitor.of(here)
    answer = await stranger.sign_up("stranger@example.org")
    assert answer.status == 403
    assert "The rule: Only people who were invited" in answer.text
    invited = await api.post(ORG + "/invitations", {"email": "guest@example.org", "role": "member"})
    secret = invited.data["secret"]
    assert "Send me the link" not in answer.text, "no mail can be sent"
    page = await stranger.get(f"/signup?invitation={secret}")
    assert heading(page) == "You are invited"
    assert (await stranger.sign_up("guest@example.org", invitation=secret)).status == 303


@pytest.mark.parametrize("next_", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nX: y"])
async def test_nobody_is_led_elsewhere_after_a_sign_in(here: Replica, owner: Visitor, next_: str) -> None:
    stranger = Visitor.of(here)
    answer = await stranger.post(
        "/login", {"email": "owner@example.org", "password": PASSWORD, "next": next_}
    )
    assert (answer.status, answer.location) == (303, "/")


async def test_the_account_keeps_the_look_and_ends_sessions(here: Replica, owner: Visitor) -> None:
    other = Visitor.of(here)
    await other.post("/login", {"email": "owner@example.org", "password": PASSWORD})
    kept = await owner.post("/account/look", {"theme": "dark", "zone": "Europe/Berlin"})
    assert kept.status == 303
    page = await owner.get("/account?done=look")
    assert 'data-theme="dark" data-zone="Europe/Berlin" data-shortcuts="off"' in page.text
    assert "CET" in page.text or "CEST" in page.text
    wrong = await owner.post("/account/look", {"theme": "dark", "zone": "../../etc/passwd"})
    assert wrong.status == 400
    assert (await owner.post("/account/sessions")).status == 303
    assert (await other.get(BASE + "/traces")).status == 303
    changed = await owner.post(
        "/account/password", {"current_password": PASSWORD, "new_password": "another horse battery"}
    )
    assert changed.location == "/account?done=password"
    short = await owner.post("/account/password", {"current_password": PASSWORD, "new_password": "short"})
    assert short.status == 400
    assert (await owner.post("/logout")).location == "/login"
    assert (await owner.get(BASE + "/traces")).status == 303


@pytest.mark.parametrize("value", ['"><script>', "../../etc/passwd", "Europe", "UTC; Path=/x", "A" * 500])
async def test_a_cookie_that_somebody_wrote_is_no_look(owner: Visitor, value: str) -> None:
    for name in ("svc_theme", "svc_zone", "svc_last"):
        owner.cookies[name] = value.replace(";", "%3B")
    seen = await owner.get("/account")
    assert 'data-theme="system" data-zone="UTC"' in seen.text


async def test_single_user_mode_opens_pages_without_signing_in(store: Database) -> None:
    async with replica(store, SVC_AUTH_DISABLED="true") as here:
        visitor = Visitor.of(here)
        typed = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        start = await visitor.get("/", **typed)
        assert start.location == BASE + "/triage"
        assert (await visitor.get(start.location, **typed)).status == 200
        assert heading(await visitor.get("/account")) == "Sign-in is disabled"
        assert (await visitor.get("/login")).location == "/"
        linked = {**typed, "Sec-Fetch-Site": "cross-site"}
        assert (await visitor.get(BASE + "/traces", **linked)).status == 200
        embedded = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
        assert (await visitor.get(BASE + "/traces", **embedded)).status == 403
        rebound = await visitor.get(BASE + "/traces", Host="evil.example", **typed)
        assert rebound.status == 403
        assert "SVC_AUTH_FRONTEND_URL" in rebound.text
        foreign = Visitor.of(here)
        foreign.origin = "https://elsewhere.example"
        assert (await foreign.post(BASE + "/connect/key")).status == 403


@pytest.mark.parametrize("role", ["viewer", "member", "admin"])
async def test_a_page_that_a_role_may_not_see_names_the_role(
    here: Replica, owner: Visitor, role: Role
) -> None:
    api = here.browser()
    await api.sign_in("owner@example.org")
    invited = await api.post(ORG + "/invitations", {"email": "guest@example.org", "role": role})
    guest = Visitor.of(here)
    await guest.sign_up("guest@example.org", invitation=invited.data["secret"])
    seen = await guest.post(BASE + "/connect/key")
    if role == "viewer":
        assert seen.status == 403
        assert "This needs the role member, admin or owner." in seen.text
    else:
        assert seen.status == 200


async def test_opening_connect_mints_no_key_and_its_form_shows_one_once(
    here: Replica, owner: Visitor
) -> None:
    first = await owner.get(BASE + "/connect")
    assert "svc_w_…" in first.text
    assert not re.search(r"svc_w_[A-Za-z0-9_-]{22}", first.text)
    minted = await owner.post(BASE + "/connect/key", X_Part="1")
    assert minted.headers["cache-control"] == "no-store"
    assert "etag" not in minted.headers
    key = re.search(r"svc_w_[A-Za-z0-9_-]{22}", minted.text)
    assert key is not None
    assert key[0] not in (await owner.get(BASE + "/connect")).text
    listed = await here.database.fetch("select name, scope from api_key")
    assert [(row["name"], row["scope"]) for row in listed] == [("OTLP ingest", "write")]


async def test_connect_explains_refused_requests(store: Database) -> None:
    refused = [{"status": 401, "cause": "no bearer token", "message": "no tenant context", "count": 3}]
    async with replica(store, known=process_view(refused=lambda: refused)) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        seen = await owner.get(BASE + "/connect/lights")
        assert heading(seen) == "Requests are arriving but refused"
        assert "401: no tenant context" in seen.text
        assert "Send the header Authorization: Bearer" in seen.text


async def test_connect_offers_a_program_for_each_way_and_shows_the_chosen_one(owner: Visitor) -> None:
    seen = (await owner.get(BASE + "/connect")).text
    shown = re.findall(r'<section id="with-([a-z-]+)"( hidden)?', seen)
    assert [key for key, hidden in shown if not hidden] == ["openai"]
    assert [key for key, _ in shown] == [program.key for program in PROGRAMS]
    assert {path.name.partition(".")[0] for path in EXAMPLES.iterdir()} == {key for key, _ in shown}
    other = (await owner.get(BASE + "/connect?with=codex")).text
    assert re.findall(r'<section id="with-([a-z-]+)" aria-label', other) == ["codex"]
    minted = (await owner.post(BASE + "/connect/key?with=codex", X_Part="1")).text
    (key,) = set(re.findall(r"svc_w_[A-Za-z0-9_-]{22}", minted))
    # In every program that sends, and once among the addresses.
    assert minted.count(f"<mark>{key}</mark>") == len(PROGRAMS)
    assert "svc_w_KEY" not in minted
    assert "localhost:8000" not in minted


async def test_an_export_to_a_wrong_path_is_explained(store: Database) -> None:
    tally = IntakeTally()
    async with replica(store, known=process_view(refused=tally.lately.told)) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        tally.lately.note(WRONG_PATH, wrong_path("/v1/tracez"))
        seen = (await owner.get(BASE + "/connect/lights")).text
        assert "404: nothing is served at /v1/tracez" in seen
        assert re.search(r"Traces go to <code>http[^<]+/v1/traces</code>", seen)


async def test_connect_follows_the_first_trace(store: Database, here: Replica, owner: Visitor) -> None:
    assert heading(await owner.get(BASE + "/connect/lights")) == "Connect your application"
    await fill(store, 1)
    seen = await owner.get(BASE + "/connect/lights")
    assert heading(seen) == "Your application is connected"
    assert f'href="{BASE}/traces/{1:032x}"' in seen.text
    assert seen.text.count("<rect") == 2


async def test_the_sample_goes_the_way_of_an_export(store: Database) -> None:
    sent: list[tuple[int, bytes]] = []

    async def send(project_id: int, body: bytes) -> str | None:
        sent.append((project_id, body))
        return None

    async with replica(store, known=process_view(send=send)) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        assert (await owner.post(BASE + "/connect/sample")).status == 303
        assert len(sent) == 1
        assert (await owner.post(BASE + "/connect/demo")).status == 303
        assert "The demo is being sent" in (await owner.get(BASE + "/connect/lights")).text


async def test_an_empty_list_says_what_to_do(store: Database, owner: Visitor) -> None:
    seen = await owner.get(BASE + "/traces")
    assert "No trace has arrived in this project yet" in seen.text
    await fill(store, 1)
    seen = await owner.get(BASE + "/traces?from=2001-01-01&to=2001-01-02")
    assert "The first one after it began" in seen.text
    seen = await owner.get(BASE + "/traces?q=user:nobody")
    assert "Nothing here matches" in seen.text
    assert "Without the filter" in seen.text


async def test_a_full_list_counts_draws_and_pages(store: Database, owner: Visitor) -> None:
    await fill(store)
    seen = await owner.get(BASE + "/traces")
    assert heading(seen) == "60 traces in the last 24 hours · 20 failed"
    assert seen.text.count("<tr data-id=") == 50
    more = re.search(r'href="([^"]*cursor=[^"]*)" data-more="([^"]*)"', seen.text)
    assert more is not None
    page, part = (link.replace("&amp;", "&") for link in more.groups())
    assert "from=" in page
    second = await owner.get(page)
    assert second.text.count("<tr data-id=") == 10
    assert "Back to the newest" in second.text
    rows_of = await owner.get(part)
    assert rows_of.text.count("<tr data-id=") == 10
    assert "<html" not in rows_of.text
    ids = re.findall(r'data-id="(\w+)"', seen.text + second.text)
    assert len(set(ids)) == 60


async def test_a_list_says_what_failed_inside_of_traces_that_went_well(
    store: Database, owner: Visitor
) -> None:
    await fill(store)
    await store.fetch("update trace set status = 'ok' where session_id = 's3'")
    seen = heading(await owner.get(BASE + "/traces"))
    assert seen == "60 traces in the last 24 hours · 18 failed · 2 with failed spans"
    await store.fetch("update trace set status = 'ok'")
    seen = heading(await owner.get(BASE + "/traces"))
    assert seen == "60 traces in the last 24 hours · 0 failed · 20 with failed spans"


#: What filters leave of 60 traces.
LEFT = {
    "status:error": 20, "status:ok": 40, "errors:yes": 20, "-errors:yes": 40, "session:s3": 4, "user:u": 60,
    "user:v": 0, "latency:>5s": 0, "latency:<10s": 60, "cost:>0": 60, "cost:>1": 0, "unpriced:no": 60,
    "unpriced:yes": 0, "kind:llm": 60, "model:gpt-4o": 60, "model:other": 0, "site:site": 60, '"ask 5"': 11,
    "ask:5": 0, "status:error session:s3 latency:>1ms": 2, "user:u 59": 1, "-status:error": 40,
    "-session:s3 -session:s4": 52, "-user:u": 0, "-user:v": 60, "-model:gpt-4o": 0, "-model:x": 60,
    "-kind:tool status:ok": 40, "-kind:llm": 0, "-site:site": 0, "-unpriced:yes -site:x": 60,
}  # fmt: skip


async def test_rows_and_drawing_say_the_same_under_every_filter(store: Database, owner: Visitor) -> None:
    await fill(store)
    for bar, count in LEFT.items():
        seen = await owner.get(f"{BASE}/traces?q={quote(bar)}")
        assert seen.text.count("<tr data-id=") == min(count, 50), bar
        said = heading(seen)
        assert said.startswith(f"{count or 'No matching'} trace"), (bar, said)


async def test_a_text_in_many_traces_is_counted_after_the_rows(
    store: Database, owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_counts, "FACETED", 10)
    await fill(store)
    seen = await owner.get(f"{BASE}/traces?q=ask&range=7d")
    assert heading(seen) == "Traces in the last 7 days, still counting"
    assert seen.text.count("<tr data-id=") == 50
    address = re.search(r'data-drawing="([^"]+)"', seen.text)
    assert address is not None
    part = await owner.get(address[1].replace("&amp;", "&"), X_Part="1")
    assert "60 traces in the last 7 days · 20 failed</p>" in part.text
    assert "data-histogram" in part.text
    # Nothing is to be counted where there is no row.
    assert (
        heading(await owner.get(f"{BASE}/traces?q=nowhere&range=7d"))
        == "No matching traces in the last 7 days"
    )


async def test_facets_count_under_the_filters_and_lead_to_them(store: Database, owner: Visitor) -> None:
    await fill(store)
    seen = await owner.get(f"{BASE}/traces/facets?q=status:error&range=7d&given=7d")
    found = dict(re.findall(r'title="([^"]+)">[^<]*</a><span class="soft">([\d,]+)', seen.text))
    assert (
        'href="' + BASE + '/traces?q=status%3Aerror+-model%3Agpt-4o&amp;range=7d" aria-label="Not'
        in seen.text
    )
    assert (found["site"], found["error"], found["gpt-4o"], found["u"]) == ("20", "20", "20", "20")
    link = re.search(r'href="([^"]*)" data-not="[^"]*" data-value="model:gpt-4o"', seen.text)
    assert link is not None
    assert "q=status%3Aerror+model%3Agpt-4o&amp;range=7d" in link[1]


async def test_facets_that_take_too_long_say_so_and_can_be_asked_for_again(
    store: Database, owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, 2)
    monkeypatch.setattr(traces, "FACETS_TIMEOUT_S", 0.0)
    seen = await owner.get(f"{BASE}/traces/facets?q=status:ok&range=7d&given=7d")
    assert "Counting values took too long for this range." in seen.text
    link = re.search(r'<a href="([^"]*)" data-again>Try again</a>', seen.text)
    assert link is not None
    assert link[1].startswith(f"{BASE}/traces/facets?q=status%3Aok&amp;from=")
    assert link[1].endswith("&amp;given=7d")


async def test_the_rail_shows_a_trace_and_knows_no_others(store: Database, owner: Visitor) -> None:
    await fill(store, 2)
    seen = await owner.get(f"{BASE}/traces/rail?trace={1:032x}")
    assert "ask 0" in seen.text
    for other in (f"{77:032x}", "zz", ""):
        assert (await owner.get(f"{BASE}/traces/rail?trace={other}", X_Part="1")).status == 404


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}\u202etxt"


async def test_hostile_names_are_text(store: Database, owner: Visitor) -> None:
    await fill(
        store, 3, name=HOSTILE, **{"session.id": HOSTILE, "user.id": HOSTILE, "svc.call_site.id": HOSTILE}
    )
    for path in (
        "/traces",
        "/traces/facets",
        "/traces/drawing?q=ask",
        f"/traces/rail?trace={1:032x}",
        "/connect",
        f"/go?q={HOSTILE[:20]}",
    ):
        seen = await owner.get(BASE + path)
        assert "<script>alert" not in seen.text
        assert "<img src=x" not in seen.text
        assert "49" not in re.findall(r"\{\{.*?\}\}", seen.text)
    assert "⟨U+202E⟩" in (await owner.get(BASE + "/traces")).text


@pytest.mark.parametrize(
    ("typed", "leads"),
    [("AB" * 16, "/traces/" + "ab" * 16), ("c-12", "/cases/C-12"), ("svc_w_abcdefghijklmnopqrstuv",
     "/settings/keys?prefix=svc_w_abcdefgh"), ("a refund", "/traces?q=a+refund")],
)  # fmt: skip
async def test_the_palette_leads_to_what_was_pasted(owner: Visitor, typed: str, leads: str) -> None:
    assert (await owner.get(f"{BASE}/go?q={typed.replace(' ', '+')}")).location == BASE + leads


async def test_a_store_that_is_away_is_said_with_the_time_until_it_is_back(
    store: Database, owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_asked: Any, **_how: Any) -> Any:
        raise Outage("the server is gone")

    with monkeypatch.context() as patched:
        patched.setattr(store, "run", away)
        first = await owner.get(BASE + "/traces")
        assert first.status == 503
        said = heading(first)
        assert re.fullmatch(r"Cannot read the store since \d\d:\d\d:\d\d, retrying", said)
        assert 'http-equiv="refresh" content="5"' in first.text
        assert heading(await owner.get("/account")) == said
    assert (await owner.get(BASE + "/traces")).status == 200
