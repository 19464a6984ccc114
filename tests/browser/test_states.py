"""Pages that no other test of this room shows, the states of pages, and a walk through pages by Tab.

States are: empty, missing, refused, signed out, without a store. One browser page walks each table, so a row
costs one load. What has a test of its own has no row here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import pytest

from protocol.refusals import UNAVAILABLE
from svc.web.shell.assets import Assets
from svc.web.shell.preferences import Preferences
from svc.web.shell.render import Renderer
from tests.browser.clean import check_everywhere, check_state, settle
from tests.browser.conftest import BASE, EMAIL, PASSWORD, Opened

EMPTY: Final = "/orgs/default/projects/blank"
#: What holds a form is opened, and the browser itself refuses nothing.
OPEN: Final = """form => {
  form.noValidate = true;
  for (let up = form; up; up = up.parentElement) up.open = true;
}"""

#: Below a project without a span; pages of settings are empty in test_settings.
EMPTY_PAGES: Final = (
    *("triage", "overview", "first-look", "vitals", "traces", "sessions", "users", "user?id=ann", "explore"),
    *("compare", "detectors", "feedback", "sets", "connect", "prices", "graph?site=support"),
    *("settings/sources", "settings/audit", "settings/erasing"),
)
#: Pages of the full project that have no row in test_pages.
FULL_PAGES: Final = (
    *("graph?site=support", "user?id=visitor-1", "feedback", "compare?q=errors:yes&range=7d"),
    *("settings", "settings?q=retention", "settings/masking", "settings/erasing", "settings/project/rules"),
    *("detectors", "settings/notifications/channel", "explore?q=latency:soon", "traces?q=speed:fast"),
    # What is not there.
    *(
        f"traces/{'f' * 32}",
        "session?id=nobody",
        "cases/C-999",
        "settings/dead-letters/999",
        "traces?range=5y",
    ),
)


@attrs.frozen
class Fault:
    """A form, by its page and its action, and what is typed into it that it refuses or asks to confirm."""

    path: str
    action: str
    typed: Mapping[str, str]
    signed_in: bool = True


FAULTS: Final = (
    Fault("/login", "/login", {"email": EMAIL, "password": "a wrong horse"}, signed_in=False),
    Fault("/signup", "/signup", {"email": "new@example.org", "password": "password"}, signed_in=False),
    Fault("/account", "/account/password", {"current_password": "wrong horse", "new_password": "short"}),
    Fault(f"{BASE}/prices?edit=gpt-4o&of=openai", "/prices", {"input": "much", "output": "-1"}),
    Fault(f"{BASE}/prices/reconcile", "/prices/reconcile", {"text": "no bill"}),
    Fault(f"{BASE}/settings/keys", "/settings/keys", {"name": " "}),
    Fault(f"{BASE}/settings/masking", "/settings/masking", {"patterns": "customer ("}),
    Fault(f"{BASE}/settings/taxonomy", "/settings/taxonomy", {"text": "{"}),
    Fault(f"{BASE}/settings/project", "/settings/project/retention", {"traces": "many"}),
    Fault(f"{BASE}/settings/project", "/settings/project/retention", {"traces": "7"}),
    Fault(f"{BASE}/settings/people", "/settings/people/invite", {"email": "nobody"}),
    Fault(f"{BASE}/settings/erasing", "/settings/erasing", {"id": "visitor-1"}),
    Fault(f"{BASE}/detectors/duration_drift", "/tuning", {"w1_floor": "much"}),
    Fault(f"{BASE}/explore?measure=traces", "/explore/keep", {"title": " "}),
)


@pytest.fixture(scope="module")
def blank(opened: Opened) -> Opened:
    """The service with one more project, to which nothing was sent."""
    with opened.page() as page:
        page.goto(opened.url(f"{BASE}/settings/project"))
        page.locator("#other").fill("Blank")
        page.get_by_role("button", name="Make a project").click()
        page.wait_for_url(f"**{EMPTY}/connect")
    return opened


def send(page: Any, fault: Fault) -> None:
    """Type into the form and send it."""
    form = page.locator(f"form[action$='{fault.action}']").first
    form.evaluate(OPEN)
    for name, text in fault.typed.items():
        form.locator(f"[name={name}]").first.fill(text)
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        form.locator("button[type=submit]").first.click()
    page.locator("h1").wait_for()


@pytest.mark.release
def test_every_page_of_an_empty_project_is_clean(blank: Opened) -> None:
    with blank.page() as page:
        for path in EMPTY_PAGES:
            check_state(page, blank.url(f"{EMPTY}/{path}"))


@pytest.mark.release
def test_pages_and_what_is_not_there_are_clean(opened: Opened) -> None:
    with opened.page() as page:
        for path in FULL_PAGES:
            check_state(page, opened.url(f"{BASE}/{path}"))
        check_state(page, opened.url("/oauth/authorize?client_id=nobody&response_type=code"))
        check_state(page, opened.url("/orgs/nobody/projects/none/triage"))
        # A person's page and a set have layouts of their own.
        page.goto(opened.url(f"{BASE}/users"))
        check_everywhere(page, opened.url(page.locator("[data-rows] .card-link").first.get_attribute("href")))


@pytest.mark.parametrize("signed_in", [True, False])
def test_a_form_with_faults_is_clean_and_keeps_what_was_typed(opened: Opened, signed_in: bool) -> None:
    with opened.page(signed_in=signed_in, viewport={"width": 1280, "height": 900}) as page:
        for fault in FAULTS:
            if fault.signed_in != signed_in:
                continue
            page.goto(opened.url(fault.path))
            send(page, fault)
            assert page.get_by_role("alert").or_(page.locator("[aria-invalid]")).count(), fault
            check_state(page)


def test_a_form_that_is_sent_after_the_session_ended_is_clean_and_comes_back(opened: Opened) -> None:
    with opened.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(opened.url(f"{BASE}/explore?measure=traces"))
        page.context.clear_cookies()
        send(page, Fault("", "/explore/keep", {"title": "Traces of a day"}))
        page.get_by_role("heading", level=1, name=re.compile("signed out|Sign in")).wait_for()
        check_state(page)
        page.get_by_label("E-mail address").fill(EMAIL)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", level=1, name=re.compile("^(?!.*signed out)")).wait_for()
        check_state(page)


def store_away() -> str:
    """The page that stands for any other while the database does not answer."""
    moment = datetime.now(UTC)
    refused = {"refusal": UNAVAILABLE, "path": "/", "away_since": moment}
    context = {"preferences": Preferences.of({}), "zone": UTC, "now": moment, "frame": None}
    return Renderer(Assets.read()).html("shell/refused.html", {**context, **refused, "single_user": False})


def test_the_page_without_a_store_is_clean(opened: Opened) -> None:
    # The embedded database is back before a browser has looked, so the page is put in the place of another.
    text = store_away()
    again = '<meta http-equiv="refresh" content="5">'
    assert again in text
    with opened.page() as page:
        body = text.replace(again, "")
        page.route("**/triage", lambda route: route.fulfill(status=503, content_type="text/html", body=body))
        check_state(page, opened.url(f"{BASE}/triage"))
        page.get_by_role("heading", name=re.compile("Cannot read the store since")).wait_for()


#: What has the focus in the page's own part: its name, whether that is seen and whether something covers it.
#: Browsers draw the parts of a date and of a player themselves.
FOCUS: Final = """() => {
  const one = document.activeElement, main = document.querySelector('main');
  if (one === main || !main.contains(one)) return null;
  const outlined = (style) => style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  const around = [one, one.parentElement].map((each) => getComputedStyle(each));
  const box = one.getBoundingClientRect();
  const [x, y] = [box.left + Math.min(box.width / 2, 8), box.top + box.height / 2];
  const top = document.elementFromPoint(x, y);
  return {
    name: one.getAttribute('aria-label') || one.innerText || one.name || one.outerHTML.slice(0, 80),
    seen: one.matches('input[type=date], audio') || outlined(getComputedStyle(one, '::after'))
      || around.some(outlined),
    covered: top !== null && !one.contains(top) && !top.contains(one),
    inSight: box.bottom > 0 && box.top < innerHeight && box.width > 0,
  };
}"""
#: More than any of these pages has to stop at.
MOST_STOPS: Final = 250
WALKED: Final = (
    *("overview?range=30d", "explore", "compare?q=errors:yes&range=7d", "users", "first-look", "connect"),
    *("settings", "settings/notifications", "prices?edit=gpt-4o&of=openai", "feedback", "vitals?range=7d"),
    "graph?site=parcel-desk/parcel-desk/invoke_agent%20parcel-desk",
)


def test_tab_walks_through_a_page_with_the_focus_in_sight_and_out_again(opened: Opened) -> None:
    with opened.page(viewport={"width": 1280, "height": 900}) as page:
        for path in WALKED:
            page.goto(opened.url(f"{BASE}/{path}"))
            settle(page)
            page.locator("main").focus()
            stops = []
            for _ in range(MOST_STOPS):
                page.keyboard.press("Tab")
                stop = page.evaluate(FOCUS)
                if stop is None:
                    break
                stops.append(stop)
            assert 0 < len(stops) < MOST_STOPS, path
            lost = [one for one in stops if one["covered"] or not (one["seen"] and one["inSight"])]
            assert lost == [], path
