"""Pages in a browser: at every width and theme, by keys alone, on a LAN name, with nothing from elsewhere."""

from __future__ import annotations

import os
import re
import time
from typing import Any

import pytest

from tests import wire
from tests.browser.clean import check, check_everywhere, settle
from tests.browser.conftest import BASE, EMAIL, PASSWORD, Opened, patiently
from tests.examples import first_always

PAGES = (
    "/account",
    f"{BASE}/connect",
    f"{BASE}/traces",
    f"{BASE}/traces?q=status:error&range=7d",
    f"{BASE}/sessions",
    f"{BASE}/users",
    f"{BASE}/first-look",
    f"{BASE}/vitals",
    f"{BASE}/overview",
    f"{BASE}/graph?site=parcel-desk/parcel-desk/invoke_agent%20parcel-desk",
    f"{BASE}/explore",
    f"{BASE}/compare",
    f"{BASE}/compare?q=status:error&range=7d",
    f"{BASE}/prices",
    f"{BASE}/prices/reconcile",
    f"{BASE}/settings/keys",
    f"{BASE}/settings/people",
    f"{BASE}/settings/project",
    f"{BASE}/settings/sources",
    f"{BASE}/settings/audit",
    f"{BASE}/nothing",
)
OUTSIDE = ("/login", "/signup", "/signup?owner=spent")


#: Pages of each kind, which every change passes.
_ALWAYS = ("/account", f"{BASE}/connect", f"{BASE}/traces", f"{BASE}/overview", f"{BASE}/prices", "/login")


def _path(path: str) -> Any:
    return path if path in _ALWAYS else pytest.param(path, marks=pytest.mark.release)


@pytest.mark.parametrize("path", [_path(path) for path in (*PAGES, *OUTSIDE)])
def test_a_page_is_clean_at_every_width_and_theme(opened: Opened, path: str) -> None:
    with opened.page(signed_in=path not in OUTSIDE) as page:
        check_everywhere(page, opened.url(path))


@pytest.mark.parametrize("theme", first_always(["dark", "light"]))
def test_what_opens_over_a_page_is_clean_too(opened: Opened, theme: str) -> None:
    with opened.page(color_scheme=theme, viewport={"width": 1280, "height": 900}) as page:
        page.goto(opened.url(f"{BASE}/traces"))
        settle(page)
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keys").wait_for()
        check(page)
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="hidden")
        page.keyboard.press("Control+k")
        page.get_by_role("option").first.wait_for()
        check(page)
        page.keyboard.press("Escape")
        # Keys that are pressed while a field has the focus are text.
        page.get_by_role("dialog").wait_for(state="hidden")
        page.wait_for_function("!document.activeElement.matches('input, select, textarea')")
        settle(page)
        page.keyboard.press("j")
        page.locator("tr.at").wait_for()
        page.keyboard.press("x")
        page.get_by_role("link", name="Open the trace").wait_for()
        check(page)
        page.get_by_role("button", name="As API call").click()
        check(page)


def test_escape_closes_a_menu_and_gives_the_focus_back(opened: Opened) -> None:
    with opened.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(opened.url(f"{BASE}/explore?measure=traces"))
        settle(page)
        kept = page.locator("summary", has_text="Keep on Overview")
        views = page.get_by_role("button", name="Saved views")
        for path, opener in (("", kept), (f"{BASE}/traces", views)):
            if path:
                page.goto(opened.url(path))
                settle(page)
            opener.press("Enter")
            # Into the field of the menu, in which other keys are text.
            page.locator("details[open] input:visible, :popover-open input:visible").first.wait_for()
            page.keyboard.press("Tab")
            page.keyboard.type("name")
            page.keyboard.press("Escape")
            assert page.locator("details.exports[open], :popover-open").count() == 0
            assert opener.evaluate("one => one === document.activeElement")


def test_by_keys_alone_from_the_sign_in_to_a_trace(opened: Opened) -> None:
    with opened.page(signed_in=False) as page:
        page.goto(opened.url(f"{BASE}/traces"))
        # The page gives it the focus by itself, a moment after it was loaded.
        page.locator("input[name=email]:focus").wait_for()
        page.keyboard.type(EMAIL)
        page.keyboard.press("Tab")
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name=re.compile("traces in the last 24 hours")).wait_for()
        settle(page)
        page.keyboard.press("/")
        page.keyboard.type("kind:tool")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Remove kind: tool").wait_for()
        settle(page)
        page.keyboard.press("j")
        page.keyboard.press("j")
        chosen = page.locator("tr.at").get_attribute("data-id")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/traces/{chosen}?in=**")


def test_a_chip_is_kept_when_more_is_typed_and_goes_by_its_cross(opened: Opened) -> None:
    with opened.page() as page:
        page.goto(opened.url(f"{BASE}/traces?q=kind:tool&range=7d"))
        # The chips are no part of what is typed, before any module runs.
        page.locator("[data-filter]").fill("status:ok")
        page.keyboard.press("Enter")
        page.wait_for_url("**q=kind%3Atool+status%3Aok**")
        assert "range=7d" in page.url
        page.get_by_role("link", name="Remove kind: tool").click()
        page.wait_for_url("**q=status%3Aok**")
        page.go_back()
        page.get_by_role("link", name="Remove kind: tool").wait_for()


def test_a_facet_narrows_and_a_bar_narrows_the_range(opened: Opened) -> None:
    with opened.page() as page:
        page.goto(opened.url(f"{BASE}/traces"))
        facets = page.get_by_role("complementary", name="Narrow down")
        patiently(facets, facets.get_by_role("link", name="gpt-4o", exact=True))
        page.get_by_role("link", name="Remove model: gpt-4o").wait_for()
        settle(page)
        box = page.locator("[data-histogram] svg").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.99, box["y"] + 20, steps=4)
        page.mouse.up()
        page.wait_for_url("**from=**to=**")
        assert "q=model%3Agpt-4o" in page.url


def test_values_that_took_too_long_to_count_are_counted_once_more(opened: Opened) -> None:
    late = '<p>Counting took too long. <a href="/nowhere" data-again>Try again</a></p>'
    with opened.page() as page:
        page.route("**/traces/facets?**", lambda route: route.fulfill(body=late), times=1)
        page.goto(opened.url(f"{BASE}/traces"))
        facets = page.get_by_role("complementary", name="Narrow down")
        facets.get_by_role("link", name="Try again").click()
        patiently(facets, facets.get_by_role("link", name="gpt-4o", exact=True))
        page.get_by_role("link", name="Remove model: gpt-4o").wait_for()


def test_the_address_keeps_what_the_rail_shows(opened: Opened) -> None:
    with opened.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(opened.url(f"{BASE}/traces"))
        settle(page)
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.get_by_role("link", name="Open the trace").wait_for()
        address = page.url
        assert "trace=" in address
        page.reload()
        page.get_by_role("link", name="Open the trace").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("link", name="Open the trace").wait_for(state="hidden")
        assert "trace=" not in page.url


def test_a_lan_name_over_plain_http_signs_in_and_copies_by_selecting(opened: Opened) -> None:
    with opened.page(signed_in=False) as page:
        page.goto(f"http://lan-host.example:{opened.service.port}{BASE}/connect")
        page.get_by_label("E-mail address").fill(EMAIL)
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        # The second block is the program.
        page.get_by_role("button", name="Copy").nth(1).click()
        page.get_by_text("Selected: press Ctrl/⌘ C").wait_for()
        assert "/v1/traces" in page.evaluate("getSelection().toString()")


def test_pages_work_without_scripts(opened: Opened) -> None:
    with opened.page(java_script_enabled=False) as page:
        page.goto(opened.url(f"{BASE}/traces"))
        page.get_by_label("Filter traces").fill("kind:tool")
        page.get_by_label("Filter traces").press("Enter")
        page.get_by_role("link", name="Remove kind: tool").wait_for()
        assert page.locator("[data-rows] tr").count() > 5
        page.get_by_label("Filter traces").fill("status:ok")
        page.get_by_label("Filter traces").press("Enter")
        page.get_by_role("link", name="Remove status: ok").wait_for()
        assert page.get_by_role("link", name="Remove kind: tool").count() == 1
        page.goto(opened.url(f"{BASE}/connect"))
        page.get_by_role("button", name="Make a key").click()
        page.get_by_text("A fresh key").wait_for()


def test_keys_are_off_in_fields_and_for_good_where_the_account_says(opened: Opened) -> None:
    with opened.page() as page:
        page.goto(opened.url(f"{BASE}/traces"))
        settle(page)
        page.keyboard.press("/")
        page.keyboard.type("?")
        assert page.get_by_role("dialog", name="Keys").count() == 0
        page.context.add_cookies([{"name": "svc_keys", "value": "off", "url": opened.service.url}])
        page.goto(opened.url(f"{BASE}/traces"))
        settle(page)
        page.keyboard.press("?")
        assert page.get_by_role("dialog", name="Keys").count() == 0


def test_a_list_is_narrowed_named_and_followed_by_keys(opened: Opened) -> None:
    with opened.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(opened.url(f"{BASE}/traces"))
        settle(page)
        # Completion: the name of a field, then one of its values, among them those of the facets.
        page.keyboard.press("/")
        page.keyboard.type("-mod")
        page.get_by_role("option", name=re.compile("^-model:")).wait_for()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.keyboard.type("mini")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert page.locator("[data-filter]").input_value() == "-model:gpt-4o-mini "
        check(page)
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Remove not model: gpt-4o-mini").wait_for()
        settle(page)
        # A facet's value is left out by its mark, or by Alt and a click.
        page.get_by_role("link", name="claude-sonnet-4-5", exact=True).click(modifiers=["Alt"])
        page.get_by_role("link", name="Remove not model: claude-sonnet-4-5").wait_for()
        address = page.url
        settle(page)
        page.get_by_role("button", name="Saved views").click()
        check(page)
        page.get_by_label("Save this one as").fill("The others")
        page.keyboard.press("Enter")
        page.get_by_text("Saved as The others").wait_for()
        page.goto(opened.url(f"{BASE}/sessions"))
        settle(page)
        page.keyboard.press("Control+k")
        page.get_by_role("option", name="The others").wait_for()
        page.keyboard.type("the oth")
        page.keyboard.press("Enter")
        page.wait_for_url(address)
        settle(page)
        slider = page.get_by_role("slider")
        slider.focus()
        page.keyboard.press("Home")
        page.keyboard.press("Shift+End")
        assert "traces" in slider.get_attribute("aria-valuetext")
        # A copied link means the same tomorrow.
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.keyboard.press("c")
        page.get_by_text("Link copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert re.search("q=-model%3Agpt-4o-mini.*&from=2.*&to=2", copied)
        page.keyboard.press("Enter")
        page.wait_for_url("**from=**to=**")
        page.get_by_role("link", name="Remove not model: gpt-4o-mini").wait_for()


def test_a_followed_list_shows_what_arrives_and_another_one_counts_it(opened: Opened) -> None:
    def send(name: str) -> None:
        began = time.time_ns() - 1_000_000_000
        named = wire.span(name, trace_id=os.urandom(16), start_ns=began, end_ns=began + 1_000_000)
        assert opened.service.send(wire.request(named).SerializeToString()).status_code == 200

    with opened.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(opened.url(f"{BASE}/traces"))
        settle(page)
        page.keyboard.press("j")
        chosen = page.locator("tr.at").get_attribute("data-id")
        send("came later")
        page.get_by_text(re.compile("^1 new$")).wait_for()
        assert page.get_by_role("cell", name="came later", exact=True).count() == 0
        page.keyboard.press(".")
        page.get_by_role("cell", name="came later", exact=True).wait_for()
        assert page.locator("tr.at").get_attribute("data-id") == chosen
        page.get_by_role("button", name="Follow").click()
        page.wait_for_url("**follow=1")
        send("came last")
        page.get_by_role("cell", name="came last", exact=True).wait_for()
        page.reload()
        assert page.get_by_role("button", name="Follow").get_attribute("aria-pressed") == "true"


def test_the_palette_and_the_light_at_the_foot_lead_into_settings(opened: Opened) -> None:
    with opened.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(opened.url(f"{BASE}/sessions"))
        settle(page)
        page.keyboard.press("Control+k")
        page.keyboard.type("dead")
        page.get_by_role("option", name="Dead letters").wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url("**/settings/dead-letters")
        foot = page.get_by_role("navigation", name="Main")
        foot.get_by_role("link", name="spans/s").click()
        page.wait_for_url("**/settings/sources")


def test_a_pasted_key_leaves_no_secret_in_an_address(opened: Opened) -> None:
    with opened.page() as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(opened.url(f"{BASE}/traces"))
        settle(page)
        page.keyboard.press("Control+k")
        page.keyboard.type("svc_w_AAAAAAAAsecretsecretse")
        page.keyboard.press("Enter")
        page.wait_for_url("**/settings/keys?prefix=svc_w_AAAAAAAA")
        assert [url for url in asked if "secret" in url] == []
