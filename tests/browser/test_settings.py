"""Settings in a browser: every operation on keys, people, projects and what they keep, each on its page."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.browser.clean import check_everywhere, check_state, settle
from tests.browser.conftest import BASE, Opened, press
from tests.service import PLAIN, until

pytestmark = pytest.mark.release

OTHER = "/orgs/default/projects/scratch"
NEW = ("mcp", "attributes", "dead-letters", "integrations", "taxonomy", "health", "agents")
TAXONOMY = """failure_modes:
  - {id: rude, name: Is rude, severity: low, scope: trace, layer: B}
"""


@pytest.fixture(scope="module")
def scratch(opened: Opened) -> Opened:
    """A project of its own, with dead letters; in the other, a run of an agent."""
    with opened.page() as page:
        page.goto(opened.url(f"{BASE}/settings/project"))
        page.locator("#other").fill("Scratch")
        page.get_by_role("button", name="Make a project").click()
        page.wait_for_url("**/projects/scratch/connect")
    folder = str(opened.service.data_dir)
    bury = [sys.executable, "-m", "tests.store.spans.buried", folder, "scratch"]
    subprocess.run(bury, check=True, capture_output=True, timeout=120)
    press = [sys.executable, "-m", "tests.store.agents.planted", folder]
    subprocess.run(press, check=True, capture_output=True, timeout=120)
    return opened


def test_the_pages_of_settings_are_clean_empty_and_full(scratch: Opened) -> None:
    with scratch.page() as page:
        for name in NEW:
            check_everywhere(page, scratch.url(f"{BASE}/settings/{name}"))
            check_state(page, scratch.url(f"{OTHER}/settings/{name}"))


def test_keys_and_tokens_are_made_shown_once_rotated_and_revoked(scratch: Opened) -> None:
    with scratch.page() as page:
        page.goto(scratch.url(f"{OTHER}/settings/keys"))
        page.get_by_label("Name").fill("dashboard")
        page.get_by_role("radio", name=re.compile("^query")).check()
        page.get_by_role("button", name="Make the key").click()
        first = page.locator(".code pre").inner_text()
        assert re.fullmatch(r"svc_q_[A-Za-z0-9_-]{22}", first)
        row = page.get_by_role("row", name=re.compile("dashboard"))
        assert "Never" in row.inner_text()
        row.get_by_text("Change").click()
        row.get_by_role("button", name=re.compile("Rotate")).click()
        second = page.locator(".code pre").inner_text()
        assert second != first
        page.goto(scratch.url(f"{OTHER}/settings/keys"))
        assert second not in page.content()
        row = page.get_by_role("row", name=re.compile("dashboard"))
        row.get_by_text("Change").click()
        row.get_by_role("button", name=re.compile("Revoke dashboard")).click()
        page.get_by_role("heading", level=1, name="This project has no key").wait_for()
        page.goto(scratch.url(f"{OTHER}/settings/mcp"))
        page.get_by_label("Name").fill("claude")
        page.get_by_role("button", name="Make a token").click()
        for name in ("Cursor", "VS Code", "Codex", "Claude Code"):
            page.get_by_role("tab", name=name).click()
            assert re.search(r"svc_a_[A-Za-z0-9_-]{22}", page.locator(".code:visible pre").inner_text())
        row = page.get_by_role("row", name=re.compile("claude"))
        assert "Never" in row.inner_text()
        row.get_by_text("Revoke").first.click()
        row.get_by_role("button", name="Revoke claude for good").click()
        page.get_by_role("heading", level=1, name="No agent can read this project yet").wait_for()
        page.goto(scratch.url(f"{OTHER}/settings/sources"))
        page.get_by_role("button", name="A key for another source").click()
        assert re.search(r"Authorization: Bearer svc_w_", page.locator(".code pre").inner_text())
        page.goto(scratch.url(f"{OTHER}/settings/audit"))
        text = page.locator("table").inner_text()
        assert [text.count(f"key.{verb}") for verb in ("rotate", "revoke")] == [1, 2]
        # The page of the connection may have made one more.
        assert text.count("key.create") >= 3


def test_a_key_that_somebody_else_revoked_is_not_rotated(scratch: Opened) -> None:
    # A refusal is an error in the console, so this page is not looked at.
    context = scratch.browser.new_context(storage_state=scratch.state)
    with closing(context), scratch.page() as first:
        keys, late = scratch.url(f"{OTHER}/settings/keys"), context.new_page()
        first.goto(keys)
        first.get_by_label("Name").fill("shared")
        first.get_by_role("button", name="Make the key").click()
        late.goto(keys)
        for page in (late, first):
            page.get_by_role("row", name=re.compile("shared")).get_by_text("Change").click()
        first.get_by_role("button", name="Revoke shared for good").click()
        first.get_by_text("Revoke shared for good").wait_for(state="detached")
        late.get_by_role("button", name=re.compile("Rotate")).click()
        late.get_by_text("Cannot rotate a revoked key.").wait_for()


def test_a_project_is_connected_by_a_sample(scratch: Opened) -> None:
    with scratch.page() as page:
        page.goto(scratch.url("/orgs/default/projects/scratch/connect"))
        page.get_by_role("button", name="Send a sample trace").click()
        page.get_by_role("heading", name="Your application is connected").wait_for()
        assert page.locator(".first-trace rect").count() == 4


def test_health_says_of_each_part_how_it_is(scratch: Opened) -> None:
    with scratch.page() as page:
        everything_works = page.get_by_role("heading", level=1, name="Everything works")

        def opens_well() -> bool:
            page.goto(scratch.url(f"{BASE}/settings/health"))
            return everything_works.is_visible()

        # A busy machine says for a moment that its loop runs late, and is right.
        until(opens_well, every_s=1)
        for part in ("Ledger", "Spool", "Drainers", "Database"):
            page.get_by_role("heading", level=2, name=re.compile(part)).wait_for()


def test_dead_letters_are_looked_at_replayed_and_discarded(scratch: Opened) -> None:
    with scratch.page() as page:
        page.goto(scratch.url(f"{OTHER}/settings/dead-letters"))
        page.get_by_role("heading", level=1, name="4 dead letters").wait_for()
        page.get_by_role("region", name="Dead letters").get_by_role("link").first.click()
        page.get_by_text('"service.name": "shop"').wait_for()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download as JSON").click()
        assert download.value.suggested_filename.startswith("dead-letter-")
        page.keyboard.press("Escape")
        page.goto(scratch.url(f"{OTHER}/settings/dead-letters"))
        reason = page.get_by_role("row", name=re.compile("invalid byte sequence")).first
        reason.get_by_text("Discard").first.click()
        reason.get_by_role("button", name="Discard all of this reason for good").click()
        page.get_by_text("Discarded 1 dead letter.").wait_for()
        page.get_by_role("region", name="By reason").get_by_role("button", name="Replay").click()
        page.get_by_text("3 dead letters replayed, 3 spans stored.").wait_for()
        page.get_by_role("heading", level=1, name="No dead letters").wait_for()


def test_integrations_are_added_tested_and_removed(scratch: Opened) -> None:
    with scratch.page() as page:
        page.goto(scratch.url(f"{OTHER}/settings/integrations"))
        page.get_by_label("Provider", exact=True).select_option("openai_compatible")
        page.get_by_label("Name").fill("house")
        page.get_by_label("Base URL").fill("http://127.0.0.1:9/v1")
        page.get_by_label("API key or token").fill("sk-of-nobody")
        page.get_by_role("button", name="Add it").click()
        page.get_by_role("heading", level=3, name="house").wait_for()
        assert "sk-of-nobody" not in page.content()
        page.get_by_role("button", name="Test house").click()
        page.get_by_text("It cannot be reached").wait_for()
        page.get_by_text("Remove", exact=True).click()
        page.get_by_role("button", name="Remove house and its secret").click()
        page.get_by_role("heading", level=1, name="No model provider and no Git host yet").wait_for()


def test_a_taxonomy_file_is_previewed_and_kept_by_keys_alone(scratch: Opened, tmp_path: Path) -> None:
    file = tmp_path / "taxonomy.yaml"
    file.write_text(TAXONOMY)
    with scratch.page() as page:
        page.goto(scratch.url(f"{OTHER}/settings/taxonomy"))
        page.locator("input[type=file]").set_input_files(str(file))
        page.get_by_text("taxonomy.yaml is in the text below.").wait_for()
        assert page.locator("#text").input_value() == TAXONOMY
        press(page, "See what it changes")
        page.get_by_role("heading", name="Changes: 1 added").wait_for()
        press(page, "Replace the taxonomy")
        page.get_by_role("heading", level=1, name="1 failure mode, 0 call sites").wait_for()


def test_a_project_is_named_kept_for_a_term_and_deleted(scratch: Opened) -> None:
    with scratch.page() as page:
        page.goto(scratch.url(f"{BASE}/settings/project"))
        page.locator("#other").fill("Passing")
        page.get_by_role("button", name="Make a project").click()
        page.wait_for_url("**/projects/passing/connect")
        there = scratch.url("/orgs/default/projects/passing/settings/project")
        page.goto(there.removesuffix("project") + "keys")
        page.get_by_label("Name").fill("exporter")
        page.get_by_role("button", name="Make the key").click()
        bearer = {"Authorization": f"Bearer {page.locator('.code pre').inner_text()}"}
        assert httpx2.post(scratch.url("/v1/traces"), content=b"", headers=bearer, **PLAIN).status_code != 401
        page.goto(there)
        page.locator("#name").fill("Passing by")
        page.get_by_role("button", name="Rename").click()
        page.get_by_role("heading", level=1, name="Passing by keeps traces").wait_for()
        page.get_by_label("Days that traces are kept").fill("7")
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_text("this deletes older data").wait_for()
        page.get_by_role("button", name="Delete and save").click()
        page.get_by_role("heading", level=1, name="Passing by keeps traces 7 days").wait_for()
        page.get_by_label("Days that traces are kept").fill("")
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_role("heading", level=1, name="Passing by keeps traces 90 days").wait_for()
        page.get_by_label(re.compile(r"Type\s+passing")).fill("passing")
        page.get_by_role("button", name="Delete Passing by").click()
        page.wait_for_url("**/triage")
        assert page.goto(there).status == 404
        assert httpx2.post(scratch.url("/v1/traces"), content=b"", headers=bearer, **PLAIN).status_code == 401


def test_an_account_changes_its_password_ends_its_sessions_and_signs_out(scratch: Opened) -> None:
    with scratch.page(signed_in=False) as page, scratch.page(signed_in=False) as other:
        page.goto(scratch.url("/signup"))
        page.get_by_label("E-mail address").fill("changing@example.org")
        page.get_by_label("Password").fill("correct horse battery")
        page.get_by_role("button", name="Sign up").click()
        page.wait_for_url("**/orgs/**")

        def sign_in(who: Any, phrase: str) -> None:
            who.goto(scratch.url("/login"))
            who.get_by_label("E-mail address").fill("changing@example.org")
            who.get_by_label("Password").fill(phrase)
            who.keyboard.press("Enter")
            who.wait_for_url("**/orgs/**")

        sign_in(other, "correct horse battery")
        page.goto(scratch.url("/account"))
        page.get_by_role("radio", name="dark").check()
        page.get_by_label("Time zone").fill("Europe/Berlin")
        page.get_by_role("button", name="Keep").click()
        page.locator("html[data-theme=dark][data-zone='Europe/Berlin']").wait_for()
        page.get_by_label("Current password").fill("correct horse battery")
        page.get_by_label("New password").fill("another horse battery")
        page.get_by_role("button", name="Change the password").click()
        page.get_by_role("status").get_by_text("Password changed").wait_for()
        other.goto(scratch.url("/account"))
        other.get_by_role("heading", name="Sign in").wait_for()
        sign_in(other, "another horse battery")
        page.goto(scratch.url("/account"))
        page.get_by_role("button", name="End", exact=True).click()
        settle(page)
        other.goto(scratch.url("/account"))
        other.get_by_role("heading", name="Sign in").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Sign in").wait_for()
        page.goto(scratch.url("/account"))
        page.wait_for_url("**/login?next=/account")


def test_the_policy_admits_whom_it_says_and_a_refusal_names_it(scratch: Opened) -> None:
    people = scratch.url(f"{OTHER}/settings/people")
    # A refusal is an error in the console, so this page is not looked at.
    context = scratch.browser.new_context()
    with closing(context), scratch.page() as page:
        guest = context.new_page()

        def decide(mode: str, domains: str = "") -> None:
            page.goto(people)
            page.get_by_role("radio", name=re.compile(f"^{mode}")).check()
            page.get_by_role("textbox", name="Domains").fill(domains)
            page.get_by_role("button", name="Decide").click()
            settle(page)
            assert page.get_by_role("radio", name=re.compile(f"^{mode}")).is_checked()

        def sign_up(address: str) -> None:
            guest.goto(scratch.url("/signup"))
            guest.get_by_label("E-mail address").fill(address)
            guest.get_by_label("Password").fill("correct horse battery")
            guest.get_by_role("button", name="Sign up").click()

        decide("domain", "example.net")
        sign_up("stranger@example.com")
        guest.get_by_role("alert").get_by_text("The rule:").wait_for()
        decide("invite")
        sign_up("somebody@example.net")
        guest.get_by_role("alert").get_by_text("The rule:").wait_for()
        decide("domain", "example.net")
        sign_up("somebody@example.net")
        guest.wait_for_url("**/orgs/**")
        decide("open")


def test_people_are_invited_changed_and_removed(scratch: Opened) -> None:
    with scratch.page() as page, scratch.page(signed_in=False) as guest:
        people = scratch.url(f"{OTHER}/settings/people")
        page.goto(people)
        page.get_by_label("E-mail address").fill("guest@example.org")
        page.get_by_role("button", name="Make an invitation").click()
        link = page.locator(".code pre").inner_text()
        guest.goto(link)
        guest.get_by_label("E-mail address").fill("guest@example.org")
        guest.get_by_label("Password").fill("correct horse battery")
        guest.get_by_role("button", name="Sign up").click()
        guest.get_by_role("heading", level=1).wait_for()
        page.goto(people)
        row = page.get_by_role("row", name=re.compile("guest@example.org"))
        row.get_by_label("Role of guest@example.org").select_option("viewer")
        row.get_by_role("button", name="Set").click()
        settle(page)
        assert guest.goto(scratch.url(f"{OTHER}/settings/keys")).status == 200
        assert guest.get_by_role("button", name="Make the key").count() == 0
        row = page.get_by_role("row", name=re.compile("guest@example.org"))
        row.get_by_text("Remove").first.click()
        row.get_by_role("button", name="Remove guest@example.org").click()
        page.get_by_role("heading", level=1, name=re.compile("people|person belong")).wait_for()
        assert page.get_by_role("row", name=re.compile("guest@example.org")).count() == 0
