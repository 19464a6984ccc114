"""`make bench-pages`: what pages cost a browser, against the budgets they shall keep to on a quiet machine.

    python -m tests.bench.pages [--opens 7]

A real service with the demo's traces, one of 30,000 spans and one of 100,100, and headless Chromium at 1440
by 900. Prints Markdown for deploy/BENCHMARKS.md, with the load of the machine, and which figures are beyond
their budget. Bytes, requests and shifts are held by tests/browser.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import time
from typing import Any

import attrs

from tests.bench.__main__ import machine
from tests.browser.clean import SEEN, settle
from tests.browser.conftest import BASE
from tests.browser.test_trace import PAINTED, cpu_ms, scrolled
from tests.service import Service, measured, until
from tests.web.one_trace import bodies, many, trace_id

#: Largest paint, answer to a key, shift of the layout; rows painted, main thread, one scroll, heap.
PAGE_BUDGET = (500.0, 100.0, 0.02)
TRACE_BUDGET = (1000.0, 150.0, 50.0, 30.0)


@attrs.frozen
class Looker:
    """A browser, the service it looks at, and the cookies of who is signed in."""

    browser: Any
    service: Service
    state: Any

    def page(self) -> Any:
        """A page in a context of its own."""
        context = self.browser.new_context(storage_state=self.state, viewport={"width": 1440, "height": 900})
        return context.new_page()

    def url(self, path: str) -> str:
        """The address of a project's page."""
        return f"{self.service.url}{BASE}{path}"


def opened(look: Looker, path: str) -> tuple[float, float, float]:
    """Largest paint and answer to a key in ms, and the shift of the layout."""
    page = look.page()
    page.goto(look.url(path))
    settle(page)
    page.keyboard.press("j")
    seen = page.evaluate(SEEN)
    page.context.close()
    return seen["paint"], seen["answer"], seen["shift"]


def drawn(look: Looker, name: str) -> tuple[float, float, float, float]:
    """Rows painted after, the main thread's time until then, of the longest of twelve scrolls, heap in MB."""
    page = look.page()
    page.add_init_script(PAINTED)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(look.url(f"/traces/{trace_id(name).hex()}"))
    page.locator(".tbody .trow[id]").first.wait_for(timeout=60_000)
    page.wait_for_timeout(200)
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    painted = page.evaluate("window.painted")
    settle(page)
    longest = max(cpu_ms(session, lambda: scrolled(page)) for _ in range(12))
    page.context.close()
    return painted, metrics["TaskDuration"] * 1000, longest, metrics["JSHeapUsedSize"] / 2**20


def load(service: Service, name: str, spans: int) -> None:
    """Send a trace of so many spans and wait until it is settled."""
    for body in bodies(many(spans, name), 2_000):
        assert service.send(body).status_code == 200
    service.wait_for_spans(spans, 300, trace_id=trace_id(name).hex())


def _sign_up(browser: Any, service: Service) -> Any:
    context = browser.new_context()
    page = context.new_page()
    page.goto(service.url + "/signup")
    page.get_by_label("E-mail address").fill("owner@example.org")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Sign up").click()
    page.get_by_role("heading", level=1).wait_for()
    state = context.storage_state()
    context.close()
    return state


def _told(name: str, runs: list[tuple[float, ...]], budget: tuple[float, ...]) -> str:
    cells = []
    for figures, bound in zip(zip(*runs, strict=True), budget, strict=True):
        median, best = statistics.median(figures), min(figures)
        digits = 3 if bound < 1 else 0
        beyond = " (beyond)" if best > bound else ""
        cells.append(f"{median:,.{digits}f}, {best:,.{digits}f}{beyond}")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Run and print."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(prog="python -m tests.bench.pages")
    parser.add_argument("--opens", type=int, default=7)
    opens = parser.parse_args().opens
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())
    with measured() as service, sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=path, args=["--no-sandbox"])
        look = Looker(browser, service, _sign_up(browser, service))
        service.command("demo", "--url", service.url)
        for name, spans in (("many", 30_000), ("vast", 100_100)):
            load(service, name, spans)
        page = look.page()
        for name in ("many", "vast"):
            skeleton = look.url(f"/traces/{trace_id(name).hex()}/skeleton")
            until(lambda at=skeleton: page.request.get(at).json()["settled"], 60, 0.5)
        time.sleep(5)
        print(f"\n{machine()}, load {os.getloadavg()[0]:.1f}; medians of {opens}, and the best")
        print("\n| page | largest paint, ms | answer to a key, ms | shift |\n|---|---|---|---|")
        places = ("/traces", "/triage", "/sessions", "/vitals", "/overview?range=30d", "/explore", "/prices")
        for one in (*places, "/connect"):
            print(_told(one, [opened(look, one) for _ in range(opens)], PAGE_BUDGET), flush=True)
        print("\n| spans | rows painted, ms | main thread, ms | longest scroll, ms | heap, MB |")
        print("|---|---|---|---|---|")
        for name, spans in (("many", 30_000), ("vast", 100_100)):
            runs: list[tuple[float, ...]] = [drawn(look, name) for _ in range(opens)]
            print(_told(f"{spans:,}", runs, TRACE_BUDGET), flush=True)
        print(f"\nload {os.getloadavg()[0]:.1f} at the end")
        browser.close()


if __name__ == "__main__":
    main()
