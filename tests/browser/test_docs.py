"""The documentation site in a browser: its search, and its look wide and narrow, light and dark."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a line for each request."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site."""
    out = tmp_path_factory.mktemp("docs") / "site"
    subprocess.run(
        [sys.executable, "deploy/site/build.py", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(out)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_search_leads_to_a_setting_and_no_page_is_wider_than_its_window(
    chromium: Any, site: str, width: int, theme: str
) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith(site) else wrong.append(asked.url))
    try:
        for name in ("index", "running", "settings", "benchmarks"):
            page.goto(f"{site}/{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        page.goto(f"{site}/index.html")
        page.keyboard.press("/")
        page.keyboard.type("svc_base_path")
        page.get_by_role("option", name="SVC_BASE_PATH").first.wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url(f"{site}/settings.html#svc_base_path")
        assert page.locator("tr:target").inner_text().startswith("SVC_BASE_PATH")
        assert wrong == []
    finally:
        context.close()
