"""Agents on pages: pressed by members, followed while they run, told apart from the rule when they are
done.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from protocol.agents import Pressed, RepoChoice, Spent
from protocol.detection import RULE
from svc.runtime.clock import now
from svc.store.agents.outcomes import OutcomeStore
from svc.store.agents.reads import RunReads
from svc.store.agents.runs import PostgresRunStore
from svc.store.agents.settings import AgentSettingStore
from svc.store.detection.rca.reports import RcaStore
from tests.front.people import Replica
from tests.store.agents.pressing import claimed
from tests.store.agents.test_runs import POSITIVE, REPORT
from tests.store.detection.detecting import ANN, fire, opened, seen
from tests.web.test_pages import HOSTILE
from tests.web.test_triage import invited
from tests.web.visitor import BASE, Visitor

USED = Spent(4, 1_000, 200, 0, 0, 0.5)
CASE = BASE + "/cases/C-1"


def said(text: str) -> str:
    """What a reader sees of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


async def test_one_press_is_followed_to_its_report_beside_the_rules(here: Replica, owner: Visitor) -> None:
    store, case = here.database, await opened(here.database, seen())
    rules = RcaStore(store)
    await rules.start(1, case.id, RULE, now())
    lease = await rules.claim(now())
    assert lease is not None
    check = {"check": "marks", "assessment": "explains", "measurement": "1.1 first seen"}
    rule: dict[str, Any] = {"engine": "rule", "verdict": "model_change", "summary": "", "ruled_out": [check]}
    await rules.finish(lease, rule, RULE, now())
    page = await owner.get(CASE)
    assert "Investigate with an agent" in page.text
    assert (await owner.post(CASE + "/agent", {})).status == 303
    assert "An agent has been queued" in said((await owner.get(CASE)).text)
    run = await claimed(store)
    await PostgresRunStore(store).progress(
        run, USED, [{"seq": 1, "at": now().isoformat(), "kind": "tool", "name": "get_span"}]
    )
    part = await owner.get(CASE + "/agent/part")
    assert "turn 4, last get_span" in said(part.text).replace(" ,", ",")
    assert "data-live" in part.text
    assert "<html" not in part.text
    checklist = [{**check, "assessment": "ruled_out", "detail": HOSTILE, "citations": []}]
    assert await OutcomeStore(store).finish(run, {**REPORT, "checklist": checklist}, USED, now())
    done = said((await owner.get(CASE)).text)
    assert "disagree on the verdict (behaviour changed against model changed)" in done
    assert "Investigate again" in done
    report = await owner.get(f"{BASE}/rca/{case_report(await owner.get(CASE))}")
    assert ">agent · " in report.text
    assert HOSTILE not in report.text


async def by_rule(here: Replica, case_id: UUID, **report: Any) -> None:
    """What the rule has found."""
    rules = RcaStore(here.database)
    await rules.start(1, case_id, RULE, now())
    lease = await rules.claim(now())
    assert lease is not None
    assert await rules.finish(lease, {"engine": "rule", "ruled_out": [], **report}, RULE, now())


async def by_agent(here: Replica, owner: Visitor, **report: Any) -> None:
    """What an agent finds."""
    assert (await owner.post(CASE + "/agent", {})).status == 303
    lease = await claimed(here.database)
    assert await OutcomeStore(here.database).finish(lease, {**REPORT, **report}, USED, now())


def ticket_of(page: Any) -> str:
    found = re.search(r'id="ticket".*?<pre[^>]*>(.*?)</pre>', page.text, re.S)
    assert found is not None
    return said(found[1])


async def test_while_an_agent_looks_the_page_goes_on_showing_what_the_rule_found(
    here: Replica, owner: Visitor
) -> None:
    case = await opened(here.database, seen())
    await by_rule(here, case.id, verdict="model_change", summary="another model answers since noon")
    assert (await owner.post(CASE + "/agent", {})).status == 303
    await claimed(here.database)
    for path in (CASE, BASE + "/triage"):
        page = await owner.get(path)
        assert "another model answers since noon" in said(page.text)
        assert "An agent is investigating" in said(page.text)
    assert "another model answers since noon" in ticket_of(await owner.get(CASE))


async def test_both_reports_stand_on_the_page_and_in_the_ticket_the_one_that_explains_first(
    here: Replica, owner: Visitor
) -> None:
    case = await opened(here.database, seen())
    await by_rule(here, case.id, verdict="model_change", summary="cause one")
    await by_agent(here, owner, verdict="inconclusive", summary="nothing was found")
    for page in (said((await owner.get(CASE)).text), ticket_of(await owner.get(CASE))):
        assert 0 <= page.index("cause one") < page.index("nothing was found")
    await by_agent(here, owner, verdict="behavior_change", summary="cause two")
    page = said((await owner.get(CASE)).text)
    assert page.index("cause two") < page.index("cause one")
    assert "nothing was found" not in page
    # Another that finds nothing takes nothing away, and says so.
    await by_agent(here, owner, verdict="inconclusive", summary="nothing again")
    page = said((await owner.get(CASE)).text)
    assert page.index("cause two") < page.index("cause one")
    assert "It found no cause, so the earlier report stays on top." in page


async def test_a_number_that_nothing_shows_is_marked_wherever_the_report_is(
    here: Replica, owner: Visitor
) -> None:
    await opened(here.database, seen())
    check = {"check": "marks", "assessment": "explains", "detail": "417 of 1,417", "citations": []}
    await by_agent(
        here, owner, summary="It cost 417 ms, 3.5 times 31.", unsupported=["417", "3.5"], checklist=[check]
    )
    marked = "It cost 417 (unverified) ms, 3.5 (unverified) times 31."
    (listed,) = await RunReads(here.database).reports(1, 5)
    for path in (CASE, BASE + "/triage", f"{BASE}/rca/{listed['id']}"):
        page = said((await owner.get(path)).text)
        assert marked in page, path
        assert "417 (unverified) of 1,417" in page
    assert marked in ticket_of(await owner.get(CASE))


def case_report(page: Any) -> str:
    found = re.search(r'/rca/([0-9a-f-]{36})">The agent', page.text)
    assert found is not None
    return found[1]


async def test_a_run_that_waits_for_people_says_for_whom_and_ends_when_somebody_cancels_it(
    here: Replica, owner: Visitor
) -> None:
    store, finding = here.database, await fire(here.database, seen())
    where = f"{BASE}/findings/{finding}"
    assert (await owner.post(where + "/agent", {})).status == 303
    assert await PostgresRunStore(store).park(await claimed(store), "no_provider", Spent())
    page = await owner.get(where)
    assert "no model provider is set" in page.text
    cancel = re.search(r'action="([^"]+/cancel)"', page.text)
    assert cancel is not None
    assert (await owner.post(cancel[1], {})).status == 303
    assert "run was cancelled" in (await owner.get(where)).text
    assert (await owner.post(cancel[1], {})).status == 409
    again = await PostgresRunStore(store).press(1, "triage", finding, ANN, now())
    assert isinstance(again, Pressed)
    assert await OutcomeStore(store).fail(await claimed(store), "timeout: its time", USED, now(), final=True)
    assert "its time was over" in (await owner.get(where)).text
    assert (await owner.post(where + "/agent", {})).status == 303
    refused = f"provider_refused: invalid_request_error: max_tokens {HOSTILE}"
    assert await OutcomeStore(store).fail(await claimed(store), refused, USED, now(), final=True)
    page = (await owner.get(where)).text
    assert "the model provider refused the request (“invalid_request_error: max_tokens" in page
    assert HOSTILE not in page
    assert (await owner.post(where + "/agent", {})).status == 303
    await OutcomeStore(store).finish(await claimed(store), POSITIVE, USED, now())
    assert "the rate rose" in (await owner.get(where)).text


async def test_who_may_only_read_presses_nothing(here: Replica, owner: Visitor) -> None:
    await opened(here.database, seen())
    viewer = await invited(here, owner, "v@example.org", "viewer")
    assert "Have an agent" not in (await viewer.get(CASE)).text
    assert (await viewer.post(CASE + "/agent", {})).status == 403
    assert (await owner.post(BASE + "/cases/C-9/agent", {})).status == 404


async def test_admins_choose_models_and_budgets_and_everybody_sees_what_ran(
    here: Replica, owner: Visitor
) -> None:
    settings = BASE + "/settings/agents"
    empty = said((await owner.get(settings)).text)
    assert "No agent has run yet" in empty
    assert "Add a model provider" in empty
    kept = {
        "provider": "openai_compatible",
        "name": f"ours {HOSTILE}",
        "base_url": "http://localhost:11434/v1",
    }
    assert (await owner.post(BASE + "/settings/integrations", kept)).status == 303
    page = (await owner.get(settings)).text
    assert HOSTILE not in page
    (provider,) = set(re.findall(r'<option value="([0-9a-f-]{36})"', page))
    form = {"rca_integration": provider, "rca_model": "a-model", "run_usd": "1.5", "day_usd": "3"}
    assert (await owner.post(settings, {**form, "triage_automatic": "on"})).status == 303
    found = await AgentSettingStore(here.database).of(1)
    assert (found.triage_automatic, found.run_usd, found.day_usd) == (True, 1.5, 3.0)
    assert {kind: choice.model for kind, choice in found.models.items()} == {"rca": "a-model"}
    page = (await owner.get(settings)).text
    assert 'value="a-model"' in page
    assert 'value="1.5"' in page
    # A model of one's own has bounds of its own.
    assert (await owner.post(settings, {**form, "rca_output": "4000", "rca_context": "32000"})).status == 303
    (choice,) = (await AgentSettingStore(here.database).of(1)).models.values()
    assert (choice.output_tokens, choice.context_tokens) == (4_000, 32_000)
    assert 'value="32000"' in (await owner.get(settings)).text
    refused = await owner.post(settings, {**form, "rca_output": "20000", "rca_context": "32000"})
    assert refused.status == 400
    assert "half of context_tokens at most" in refused.text
    assert (await owner.post(settings, {**form, "triage_automatic": "on"})).status == 303
    # What cannot be kept is said, and what was typed stays.
    for wrong in (
        {"day_usd": "much"},
        {"rca_model": ""},
        {"rca_integration": "none"},
        {"run_usd": "-1"},
        {"rca_output": "many"},
    ):
        refused = await owner.post(settings, {**form, **wrong})
        assert refused.status in (400, 404), wrong
        assert 'role="alert"' in refused.text
        assert 'name="rca_model"' in refused.text
    assert await AgentSettingStore(here.database).of(1) == found
    # Without a provider it is the runner's again.
    assert (await owner.post(settings, {})).status == 303
    assert (await AgentSettingStore(here.database).of(1)).models == {}
    await opened(here.database, seen())
    assert (await owner.post(CASE + "/agent", {})).status == 303
    viewer = await invited(here, owner, "viewer@example.org", "viewer")
    seen_by = said((await viewer.get(settings)).text)
    assert "investigating cases" in seen_by
    assert "waits for its turn" in seen_by
    assert "Admins and owners change these" in seen_by


async def test_a_repository_is_named_with_the_integration_of_its_own_host(
    here: Replica, owner: Visitor
) -> None:
    settings, where = BASE + "/settings/agents", "https://git.example.org/team/shop"
    kept = {
        "provider": "gitlab",
        "name": "our host",
        "base_url": "https://git.example.org/api/v4",
        "secret": "glpat-of-ours",
    }
    assert (await owner.post(BASE + "/settings/integrations", kept)).status == 303
    page = (await owner.get(settings)).text
    (host,) = set(re.findall(r'<option value="([0-9a-f-]{36})"', page))
    form = {"repo_url": where, "repo_ref": "main", "repo_integration": host, "day_usd": "3"}
    assert (await owner.post(settings, form)).status == 303
    assert (await AgentSettingStore(here.database).of(1)).repository == RepoChoice(where, "main", UUID(host))
    page = (await owner.get(settings)).text
    assert f'value="{where}"' in page
    assert "glpat-of-ours" not in page
    for wrong, why in (
        ({"repo_url": "http://git.example.org/team/shop"}, "named by its https address"),
        ({"repo_url": "https://elsewhere.example.org/shop"}, "not on the host of that integration"),
        ({"repo_url": "https://ann:secret@git.example.org/shop"}, "holds no user"),
        ({"repo_ref": "--upload-pack=id"}, "named by letters"),
        ({"repo_integration": str(UUID(int=7))}, "no such integration"),
    ):
        refused = await owner.post(settings, {**form, **wrong})
        assert refused.status in (400, 404)
        assert why in said(refused.text).lower()
    assert (await owner.post(settings, {"day_usd": "3"})).status == 303
    assert (await AgentSettingStore(here.database).of(1)).repository is None


async def test_a_report_says_what_it_could_not_do_and_which_numbers_nothing_shows(
    here: Replica, owner: Visitor
) -> None:
    await opened(here.database, seen())
    assert (await owner.post(CASE + "/agent", {})).status == 303
    whole = {
        **REPORT,
        "detailed_report": f"At length. {HOSTILE}",
        "unsupported": ["417"],
        "notes": ["No script could be run: no sandbox can be used."],
    }
    assert await OutcomeStore(here.database).finish(await claimed(here.database), whole, USED, now())
    listed = await RunReads(here.database).reports(1, 5)
    page = await owner.get(f"{BASE}/rca/{listed[0]['id']}")
    assert "No script could be run: no sandbox can be used." in page.text
    assert "Numbers not found in any cited trace: 417." in said(page.text)
    assert "At length." in page.text
    assert HOSTILE not in page.text
