"""Settings that change much: dead letters, integrations, MCP tokens, taxonomy, terms; and health in words."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

import msgspec
import pytest

from protocol.storage import Batch, Letter, StoreRefused, Written
from svc.domain.intake.batches import decoder
from svc.domain.pricing.prices import PriceBook
from svc.runtime.clock import now
from svc.store.postgres.database import Connection, Database
from svc.store.spans.dead_letters import DeadLetterStore
from svc.web.settings.health_text import told
from svc.web.shell.process_view import SignOnState, UntilVisible
from tests.cost import while_dear
from tests.front.people import HEALTHY, NoProcess, Replica, process_view, replica
from tests.store.detection.detecting import opened, seen
from tests.store.spans.test_writing import one, store_of
from tests.web.test_pages import HOSTILE, fill, heading
from tests.web.test_triage import TRIAGE, listed
from tests.web.visitor import BASE, Visitor
from tests.wire import request

SETTINGS = BASE + "/settings"
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"
DECODE = decoder(PriceBook())


class Storing(NoProcess):
    """A process that stores what is replayed, unless a span is called `bad`."""

    def __init__(self, store: Database) -> None:
        super().__init__()
        self.spans = store_of(store)

    async def write(self, batch: Batch) -> Written:
        rows = list(chain.from_iterable(DECODE(batch)))
        if any(row.row.name == "bad" for row in rows):
            raise StoreRefused("numeric field overflow")
        return await self.spans.write(rows)


@pytest.fixture
async def process(store: Database) -> Storing:
    return Storing(store)


@pytest.fixture
async def here(store: Database, process: Storing) -> AsyncIterator[Replica]:
    sso = SignOnState("https://id.example", "https://traces.example/auth/sso/callback")
    async with replica(store, known=process_view(process=process, sign_on=sso), replays=process) as found:
        yield found


def letter(number: int, name: str, reason: str = "too wide") -> Letter:
    span = one(number, name=name, attributes={"note": SECRET})
    body = request(span, resource={"service.name": f"shop {HOSTILE}"}).SerializeToString()
    return Letter(1, reason, body, now(), 1)


async def test_dead_letters_are_read_replayed_and_discarded_and_the_audit_says_so(
    store: Database, owner: Visitor, process: Storing
) -> None:
    here = SETTINGS + "/dead-letters"
    assert "Everything that came was stored" in (await owner.get(here)).text
    letters = DeadLetterStore(store)
    await letters.bury([letter(n, "ask") for n in (1, 2, 3)])
    await letters.bury([letter(4, "bad", HOSTILE), Letter(1, "no batch", b"\xff", now(), 1)])
    await letters.bury([Letter(2, "a letter of others", b"", now(), 1)])
    page = await owner.get(here)
    assert heading(page) == "5 dead letters"
    assert "a letter of others" not in page.text
    for text in (page.text, (await owner.get(here + "?reason=too+wide")).text):
        assert "<img src=x" not in text
        assert "shop &lt;" in text
    shown = await owner.get(here + "/1")
    assert (SECRET in shown.text, "aws-access-key-id" in shown.text) == (False, True)
    file = await owner.get(here + "/1?form=json")
    assert "attachment" in file.headers["content-disposition"]
    assert SECRET not in file.text
    assert "These bytes are not spans" in (await owner.get(here + "/5")).text
    for wrong in ("6", "0", "x", "9" * 30):
        assert (await owner.get(f"{here}/{wrong}")).status == 404
    await letters.bury([Letter(1, "large", bytes(8 * 1024 * 1024 + 1), now(), 1)])
    large = await owner.get(here + "/7")
    assert (large.status, "8.0 MiB are not opened here" in large.text) == (413, True)
    await owner.post(here + "/discard", {"reason": "large"})
    # Nothing chosen is nothing done.
    assert (await owner.post(here + "/discard")).status == 400
    done = await owner.post(here + "/replay", {"reason": "too wide"})
    assert "3 dead letters replayed, 3 spans stored." in (await owner.get(done.location)).text
    done = await owner.post(here + "/replay", {"every": "yes"})
    page = await owner.get(done.location)
    assert "2 dead letters were refused again" in page.text
    assert "numeric field overflow" in page.text
    done = await owner.post(here + "/discard", {"id": "5"})
    assert "Discarded 1 dead letter." in (await owner.get(done.location)).text
    await owner.post(here + "/discard", {"every": "yes"})
    assert heading(await owner.get(here)) == "No dead letters"
    assert process.gone_spans == 6
    assert await letters.count_spans() == 1
    audit = await owner.get(SETTINGS + "/audit")
    assert audit.text.count("dead_letter.replay") == 2
    assert audit.text.count("dead_letter.discard") == 3


async def test_an_integration_is_sealed_tested_changed_and_removed(owner: Visitor) -> None:
    here = SETTINGS + "/integrations"
    assert heading(await owner.get(here)).startswith("No model provider")
    fields = {
        "provider": "openai_compatible",
        "name": f"house {HOSTILE}",
        "base_url": "http://127.0.0.1:1/v1",
    }
    wrong = await owner.post(here, {**fields, "base_url": "", "secret": SECRET})
    assert (wrong.status, SECRET in wrong.text) == (400, False)
    assert "Openai_compatible needs a base_url" in wrong.text
    assert (await owner.post(here, {**fields, "secret": SECRET})).status == 303
    page = await owner.get(here)
    assert "secret <b>sealed</b>" in page.text
    assert SECRET not in page.text
    assert "<img src=x" not in page.text
    found = re.search(r'name="id" value="([^"]+)"', page.text)
    assert found is not None
    tested = await owner.post(here + "/test", {"id": found[1]})
    assert "It cannot be reached" in tested.text
    moved = await owner.post(here, {**fields, "id": found[1], "base_url": "http://127.0.0.1:2/v1"})
    assert (moved.status, "Send the secret again" in moved.text) == (400, True)
    assert (await owner.post(here, {**fields, "id": found[1], "name": "renamed"})).status == 303
    assert "renamed" in (await owner.get(here)).text
    assert (await owner.post(here + "/remove", {"id": found[1]})).status == 303
    assert (await owner.post(here + "/remove", {"id": found[1]})).status == 404
    assert "provider.delete" in (await owner.get(SETTINGS + "/audit?of=organization")).text
    cloud = {"provider": "aws_bedrock", "name": "cloud", "secret": SECRET}
    refused = await owner.post(here, cloud)
    assert (refused.status, "needs a region" in refused.text) == (400, True)
    assert (await owner.post(here, {**cloud, "region": "eu-central-1"})).status == 303
    assert "region <b>eu-central-1</b>" in (await owner.get(here)).text


async def test_a_token_comes_with_the_lines_to_paste_and_is_revoked(owner: Visitor) -> None:
    here = SETTINGS + "/mcp"
    assert "svc_a_…" in (await owner.get(here)).text
    made = await owner.post(here, {"name": "claude"})
    assert made.headers["cache-control"] == "no-store"
    token = re.search(r"svc_a_[A-Za-z0-9_-]{22}", made.text)
    assert token is not None
    text = made.text.replace("&#34;", '"')
    assert f'claude mcp add --transport http traces http://localhost/mcp --header "Authorization: Bearer {token[0]}"' in text  # fmt: skip # noqa: E501
    for name in ("Claude Code", "Cursor", "VS Code", "Codex"):
        section = re.search(rf'<section data-tab="{name}">(.*?)</section>', text, re.S)
        assert section is not None
        assert token[0] in section[1]
    json_of = re.search(r'data-tab="VS Code">.*?<pre[^>]*>(.*?)</pre>', text, re.S)
    assert json_of is not None
    server = msgspec.json.decode(json_of[1])["servers"]["traces"]
    assert server["headers"] == {"Authorization": f"Bearer {token[0]}"}
    page = await owner.get(here)
    assert (token[0] in page.text, "Never" in page.text) == (False, True)
    key = re.search(r'name="id" value="([^"]+)"', page.text)
    assert key is not None
    assert (await owner.post(here, {"name": " "})).status == 400
    assert (await owner.post(here + "/revoke", {"id": key[1]})).status == 303
    assert heading(await owner.get(here)) == "No agent can read this project yet"


TAXONOMY = """
call_sites:
  - {id: reply, intent: Answers, output_schema: {type: object}}
failure_modes:
  - {id: rude, name: Is rude, severity: low, scope: trace, layer: B}
  - {id: wrong, name: Is wrong, severity: high, scope: trace, layer: A}
"""


async def test_a_taxonomy_is_looked_at_before_it_replaces_another(here: Replica, owner: Visitor) -> None:
    at = SETTINGS + "/taxonomy"

    async def look(text: str) -> tuple[str, str]:
        page = await owner.post(at, {"text": text})
        assert page.status == 200, page.text
        mark = re.search(r'name="seen" value="([^"]+)"', page.text)
        return page.text, "" if mark is None else mark[1]

    text, mark = await look(TAXONOMY)
    assert "Changes: 3 added" in text
    assert heading(await owner.get(at)) == "No taxonomy yet"
    assert (await owner.post(at, {"text": TAXONOMY, "seen": mark})).status == 303
    assert heading(await owner.get(at)) == "2 failure modes, 1 call site"
    assert "No changes" in (await look(TAXONOMY))[0]
    other = TAXONOMY.replace("Is rude", "Is very rude").replace("wrong", HOSTILE.replace('"', ""))
    text, mark = await look(other.replace(HOSTILE.replace('"', ""), "odd"))
    assert "1 added, 1 changed, 1 removed" in text
    # Somebody else was there between the look and the press.
    _, mark_again = await look("failure_modes: []")
    assert (await owner.post(at, {"text": "failure_modes: []", "seen": mark_again})).status == 303
    late = await owner.post(at, {"text": TAXONOMY, "seen": mark})
    assert (late.status, "Somebody else has changed the taxonomy" in late.text) == (409, True)
    assert "Changes: 3 added" in late.text
    bomb = "a: &a [x,x,x]\n" + "".join(f"b{n}: &b{n} [*a,*a]\n" for n in range(3))
    for wrong, why in (
        (bomb, "liases (*name) are not read here"),
        ("failure_modes: [{id: x}]", "missing required field"),
        ("[", "expected"),
        ("x" * (256 * 1024 + 1), "trace-svc taxonomy import"),
        ("failure_modes: <img src=x>", "Expected"),
    ):
        refused = await owner.post(at, {"text": wrong})
        assert (refused.status, why in refused.text) == (400, True), wrong[:40]
        assert "<img src=x" not in refused.text
    await owner.post(at, {"text": TAXONOMY, "seen": (await look(TAXONOMY))[1]})
    file = await owner.get(at + "?form=json")
    assert "No changes" in (await look(file.text))[0]
    assert (await owner.get(SETTINGS + "/audit")).text.count("taxonomy.update") == 3


async def test_a_shorter_term_says_what_it_deletes_before_it_does(store: Database, owner: Visitor) -> None:
    forecast = await owner.get(SETTINGS + "/project/forecast")
    assert "nothing to forecast" in forecast.text
    await fill(store, 30)

    async def older(connection: Connection) -> None:
        await connection.execute("update trace set started_at = started_at - interval '3 days'")

    await store.run(older)
    forecast = await owner.get(SETTINGS + "/project/forecast")
    assert "arrive per day" in forecast.text
    assert "Within 90 days that comes to about" in forecast.text
    at = SETTINGS + "/project/retention"
    asked = await owner.post(at, {"traces": "2"})
    assert asked.status == 200
    assert re.search(r"30 traces with 60 spans began before", asked.text)
    assert heading(await owner.get(SETTINGS + "/project")) == "Default keeps traces 90 days"
    assert (await owner.post(at, {"traces": "2", "sure": "yes"})).status == 303
    assert heading(await owner.get(SETTINGS + "/project")) == "Default keeps traces 2 days"
    # A longer one deletes nothing.
    assert (await owner.post(at, {"traces": "0"})).status == 303
    assert "Nothing is deleted, so it grows" in (await owner.get(SETTINGS + "/project/forecast")).text


async def test_the_organization_is_named_and_says_how_people_sign_in(owner: Visitor) -> None:
    page = await owner.get(SETTINGS + "/people")
    assert "https://id.example" in page.text
    assert "https://traces.example/auth/sso/callback" in page.text
    named = await owner.post(SETTINGS + "/people/organization", {"name": "Acme", "signup_role": "member"})
    assert named.status == 303
    page = await owner.get(SETTINGS + "/people")
    assert heading(page) == "1 person belongs to Acme"
    assert "<option selected>member</option>" in page.text
    assert (await owner.post(SETTINGS + "/people/organization", {"name": " "})).status == 400
    whole = await owner.get(SETTINGS + "/audit?of=organization")
    assert heading(whole) == "Who did what in all of Acme"
    assert "org.update" in whole.text
    assert "org.update" not in (await owner.get(SETTINGS + "/audit")).text


async def test_health_is_said_in_words(store: Database, owner: Visitor, process: Storing) -> None:
    await fill(store, 2)
    page = await owner.get(SETTINGS + "/health")
    assert heading(page) == "Everything works"
    assert "All 1 run" in page.text
    # A test has no days; what it stored lies beside them.
    assert "other times" in page.text
    ill = copy.deepcopy(HEALTHY)
    ill["status"] = "DOWN"
    parts: Any = ill["components"]
    parts["db"] = {"status": "DOWN", "details": {"error": "connection refused " + HOSTILE}}
    parts["actors"]["details"]["judge-tool-error"] = {
        "state": "failed", "crashes": 3, "last_error": HOSTILE, "rests_s": 60.0,
    }  # fmt: skip
    process.report = ill
    page = await owner.get(SETTINGS + "/health")
    assert page.status == 200
    assert heading(page) == "Something is down: database, judge-tool-error"
    assert "<img src=x" not in page.text
    assert "tried again after 1 m 00 s" in page.text


def test_each_part_of_health_tells_its_trouble() -> None:
    def said(**changes: Any) -> dict[str, tuple[str, str]]:
        report: Any = copy.deepcopy(HEALTHY)
        details = report["components"]["ingest"]["details"]
        details.update(changes)
        details["ledger"].update(changes.pop("ledger", {}))
        visible = UntilVisible(20, 0.25, None)
        return {part.name: (part.tone, part.text) for part in told(report, visible, 5 << 30).parts}

    assert said()["Time until visible"] == (
        "warn",
        "Half of the batches were visible within 250 ms of their acknowledgement, 95 %"
        " after more than a minute.",
    )
    assert said(bytes=1 << 27)["Spool"][0] == "warn"
    assert said(drainer_alive=False, drainers_alive=0)["Drainers"] == (
        "bad",
        "0 of 1 are running; queued batches wait.",
    )
    assert said(waiting_for="the database")["Drainers"] == ("warn", "They wait: the database.")
    # As many as there are, whatever the setting says.
    assert said(drainers=5, drainers_alive=5)["Drainers"] == ("ok", "5 drainers are storing batches.")
    assert "Agents" not in said()


@pytest.mark.parametrize(
    ("status", "more", "tone", "text"),
    [
        ("UP", {}, "ok", "Runs start when somebody asks for one."),
        ("UP", {"note": "runs go on without scripts: x"}, "ok", "Runs go on without scripts: x."),
        ("DEGRADED", {"fault": "no CLI"}, "warn", "Runs cannot start: no CLI."),
    ],
)
def test_health_tells_of_agents(status: str, more: dict[str, str], tone: str, text: str) -> None:
    report: Any = copy.deepcopy(HEALTHY)
    report["components"]["agents"] = {"status": status, "details": {"in_hand": 0, "runner": "here", **more}}
    health = told(report, UntilVisible(0, None, None), None)
    part = {part.name: part for part in health.parts}["Agents"]
    assert (part.tone, part.text) == (tone, text)
    assert health.headline == ("Working, but check agents" if tone == "warn" else "Everything works")


async def test_the_inbox_of_500_cases_stays_within_its_budget(store: Database, owner: Visitor) -> None:
    await opened(store, seen(1, title="`tool` fails more often: 1 % → 9 % of traces"))

    async def many(connection: Connection) -> None:
        columns = await connection.fetchval(
            "select string_agg(quote_ident(column_name), ', ') from information_schema.columns"
            " where table_name = 'detection_case' and is_generated = 'NEVER'"
            " and column_name not in ('id', 'number', 'opened_at')"
        )
        await connection.execute(
            f"insert into detection_case (id, number, opened_at, {columns})"
            f" select gen_random_uuid(), n, opened_at - n * interval '1 minute', {columns}"
            " from detection_case, generate_series(2, 500) n where number = 1"
        )

    await store.run(many)
    took: list[float] = []
    for _ in while_dear(took, below=0.06):
        began = time.process_time()
        page = await owner.get(TRIAGE)
        took.append(time.process_time() - began)
    assert heading(page).startswith("500 things need you")
    assert re.search(r"data-open-cases[^>]*>500<", page.text)
    assert len(listed(page)) == 50
    more = re.search(r'<p class="rest"><a class="go" href="([^"]+)"', page.text)
    assert more is not None
    assert len(listed(await owner.get(more[1].replace("&amp;", "&")))) == 50
    packed = await owner.get(TRIAGE, Accept_Encoding="gzip")
    assert int(packed.headers["content-length"]) <= 40 * 1024
    # All of a request in this process, its questions to the database included; measured 2026-11: 14 ms, and
    # 34 to 40 on a slow day of the machine beside other work.
    assert min(took) < 0.06, took
    # A key leads from each case to the next, however long the list is.
    last = await owner.get(BASE + "/cases/C-250?in=open")
    assert "C-249?in=open" in last.text
    assert "C-251?in=open" in last.text
