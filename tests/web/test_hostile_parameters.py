"""No page fails on what its address says: every parameter of every page, with values that nobody expects."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

import svc.web
from svc.store.postgres.database import Database
from svc.web.table import PAGES
from tests.examples import first_always
from tests.store.spans.test_writing import fetch
from tests.web.test_pages import fill
from tests.web.visitor import Visitor

_ASKED: Final = re.compile(r'(?:query\.get\(|query\[|\.number\()"([a-z_]+)"')
#: Every parameter that any page asks for.
NAMES: Final = sorted(
    {
        name
        for path in Path(svc.web.__file__).parent.rglob("*.py")
        for name in _ASKED.findall(path.read_text())
    }
)
PATHS: Final = [page.path for page in PAGES if page.method == "GET"]
#: Digits that are no number, numbers and days at the end of what there is, characters that are not stored.
#: As many as share no factor with the names, so that each name meets another value on each page.
VALUES: Final = (
    "²", "9999-12-31", "0001-01-01", "\x00", "1e999", "9" * 400, "-1", "latency:>²",
    "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "NaN",
)  # fmt: skip


def test_the_parameters_are_found() -> None:
    assert {"q", "from", "from_row", "to", "step", "did"} < set(NAMES)


#: Each turn takes one pair of page and parameter in so many, with one value; all of them take all.
SHARES: Final = 8


@pytest.mark.parametrize("turn", first_always(range(SHARES * len(VALUES))))
async def test_no_page_fails_on_a_parameter(owner: Visitor, store: Database, turn: int) -> None:
    await fill(store, 4)
    [span] = await fetch(
        store, "select encode(trace_id, 'hex') as trace, encode(span_id, 'hex') as span from span limit 1"
    )
    known = {
        **{"orgSlug": "default", "projectSlug": "default", "name": "tool_error", "what": "models"},
        **{"traceId": span["trace"], "spanId": span["span"]},
    }
    value_from, share = divmod(turn, SHARES)
    pairs = list(enumerate(product(PATHS, NAMES), start=value_from))
    for number, (path, name) in pairs[share::SHARES]:
        filled = re.sub(r"{(\w+)}", lambda found: known.get(found[1], "any"), path)
        address = f"{filled}?{name}={quote(VALUES[number % len(VALUES)], safe='')}"
        seen = await owner.get(address)
        assert seen.status < 500, address


@pytest.mark.parametrize("host", ["a" * 64, "a" * 400 + ":8000", "..", "xn--\xb2", "[::1", "²"])
async def test_no_page_fails_on_the_name_of_its_host(owner: Visitor, host: str) -> None:
    assert (await owner.get("/login", Host=host)).status < 500
