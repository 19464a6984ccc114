"""What templates, styles and modules never hold, and how large they may become."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from svc.web.shell.assets import STATIC
from svc.web.shell.render import ROOMS

PYTHON = sorted(ROOMS.rglob("*.py"))
HTML = sorted(ROOMS.rglob("*.html"))
MODULES = sorted(STATIC.glob("*.js"))

BANNED_IN_TEMPLATES = {
    "an unescaped value": r"\|\s*safe|autoescape\s+false|Markup",
    "an inline style": r"\sstyle\s*=|<style",
    "an inline script": r"<script(?![^>]*\ssrc=)|\son[a-z]+\s*=|javascript:",
    "a thing from elsewhere": r"(?:src|href|action)\s*=\s*[\"'](?:https?:)?//",
}
BANNED_IN_MODULES = {
    "HTML as text": r"innerHTML|outerHTML|insertAdjacentHTML|document\.write",
    "code as text": r"\beval\b|new Function|setTimeout\(\s*[\"'`]",
    "an inline style": r"setAttribute\(\s*[\"']style|cssText",
    "a thing from elsewhere": r"https?://",
}


@pytest.mark.parametrize("what", BANNED_IN_TEMPLATES)
def test_no_template_holds(what: str) -> None:
    for path in HTML:
        text = path.read_text(encoding="utf-8")
        found = re.search(BANNED_IN_TEMPLATES[what], re.sub(r"\{#.*?#\}", "", text, flags=re.S))
        assert found is None, (path.name, found)


#: Rooms whose texts people read, and what of them writes places of a drawing, or digits that nobody sees.
TEXTS = ("web", "commands", "domain", "detecting")
PLACES = {"quantities.py", "charts.py", "overview_charts.py", "answers.py"}
_BY_HAND = re.compile(r"\{[^{}]*:[,+]?(?:\.\d+)?[fgeEG%]\}|\.toFixed\(|\.toPrecision\(|toLocaleString")


def test_no_text_writes_a_number_by_hand() -> None:
    svc = ROOMS.parent
    texts = [path for room in TEXTS for path in (svc / room).rglob("*.py") if path.name not in PLACES]
    by_hand = [path.name for path in texts if _BY_HAND.search(path.read_text(encoding="utf-8"))]
    # Of modules the one that owns the numbers, and the one that writes widths in percent of a row.
    by_hand += [
        path.name
        for path in MODULES
        if _BY_HAND.search(re.sub(r"toFixed\(3\)\}%", "", path.read_text(encoding="utf-8")))
    ]
    assert by_hand == ["format.js"]
    for path in HTML:
        text = re.sub(r"\{#.*?#\}", "", path.read_text(encoding="utf-8"), flags=re.S)
        for found in re.finditer(r"""["']%[^"'%]*[fgd]["'] *(?:%|\|)|\|\s*format\(""", text):
            before = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", text[: found.start()], flags=re.S)
            # Inside of a tag it is a place of a drawing.
            assert before.rfind("<") > before.rfind(">"), (path.name, text[found.start() - 40 : found.end()])


@pytest.mark.parametrize("what", BANNED_IN_MODULES)
def test_no_module_holds(what: str) -> None:
    for path in MODULES:
        found = re.search(BANNED_IN_MODULES[what], path.read_text(encoding="utf-8"))
        assert found is None, (path.name, found)


def test_one_place_parses_fragments() -> None:
    parsing = {path.name for path in MODULES if "DOMParser" in path.read_text(encoding="utf-8")}
    assert parsing == {"part.js"}


def test_every_module_is_checked_as_typescript_and_says_what_it_does() -> None:
    for path in MODULES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0] == "// @ts-check", path.name
        assert lines[1].startswith("/**"), path.name


def test_modules_stay_under_300_lines() -> None:
    assert {path.name for path in MODULES if len(path.read_text().splitlines()) > 300} == set()


def test_pages_stay_under_their_length() -> None:
    #: Longer than 200 lines, each with its reason.
    reasons = {
        "traces.py": "one list: rows, drawing, facets and rail under one reading of the address",
        "sign_in.py": "the three forms of one door",
    }
    long = {path.name for path in PYTHON if path.parent.name == "pages" and _lines(path) > 200}
    assert long <= reasons.keys()


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_style_and_scripts_of_a_page_fit_their_budgets() -> None:
    css = len(gzip.compress((STATIC / "look.css").read_bytes(), 9))
    assert css <= 14 * 1024
    every_page = ("main", "keys", "help", "copy", "toast", "part", "palette", "pulse")
    shared = sum(len(gzip.compress((STATIC / f"{name}.js").read_bytes(), 9)) for name in every_page)
    for path in MODULES:
        if path.stem not in every_page:
            assert shared + len(gzip.compress(path.read_bytes(), 9)) <= 25 * 1024, path.name
