"""Laws of a long result: the model sees whole rows and how many there are, and scripts find all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.runner.shown_result import ShownResult, shown_result
from tests import wire
from tests.e2e.hostile import trace_id
from tests.runner.running import Place, answer, ended, request, runner
from tests.runner.standin_model import Asked, Reply, calls, standin
from tests.service import Service

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), st.lists(VALUES, max_size=30) | VALUES, max_size=5), st.data())
def test_what_is_shown_is_json_of_whole_rows_that_fits(answered: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(answered, ensure_ascii=False, separators=(",", ":"))
    most = data.draw(st.integers(0, len(text.encode()) + 20))
    shown = shown_result(text, most, most)
    assert len(shown.text.encode()) <= most
    if not shown.field and not shown.rows:
        assert text.startswith(shown.text)
        return
    seen = json.loads(shown.text)
    rows = answered[shown.field]
    assert shown.rows_in_all == len(rows)
    assert seen == {**answered, shown.field: rows[: shown.rows]}
    assert list(seen) == list(answered)


@pytest.mark.parametrize(
    "text", ["", "exit code 0\n[1,2,3]", "[1,2,3]", '{"a":1}', '{"a":[]}', "[" * 100_000]
)
def test_what_has_no_rows_is_shown_from_its_head(text: str) -> None:
    assert shown_result(text, 5, 5) == ShownResult(text[:5])


SPANS = 100


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "shown").strip()
    return Place(f"{service.url}/mcp", token)


@pytest.fixture(scope="module")
def wide_trace(service: Service) -> str:
    """A trace of a hundred spans, each of which says something."""
    trace = trace_id()
    said = {"input.value": "Where is the order that I placed last week? " * 10}
    spans = [wire.span(f"look {number}", trace_id=trace, attributes=said) for number in range(SPANS)]
    assert service.send(wire.request(*spans).SerializeToString()).status_code == 200
    service.wait_for_spans(SPANS, trace_id=trace.hex())
    return trace.hex()


def lists(trace: str, then: Callable[[Asked], Reply]) -> Callable[[Asked], Reply]:
    """A model that lists all spans of a trace at once."""

    def script(asked: Asked) -> Reply:
        if not asked.results:
            return calls(("list_spans", {"trace_id": trace, "limit": SPANS}))
        return then(asked)

    return script


async def test_without_scripts_it_is_told_before_it_asks_how_many_rows_fit_and_pages_by_that(
    place: Place, wide_trace: str
) -> None:
    def pages(asked: Asked) -> Reply:
        if len(asked.results) == 1:
            limit = re.search(r"ask again with limit (\d+) to page through it", asked.results[0])
            assert limit is not None, asked.results[0][:200]
            return calls(("list_spans", {"trace_id": wide_trace, "limit": int(limit[1])}))
        return calls(("submit_answer", answer()))

    with standin(lists(wide_trace, pages)) as model:
        async with runner() as client:
            result, _ = await ended(client, "run.1", request(model, place.url, place.token))
        asked = model.asked
    assert result.state == "done", result
    [said] = [tool["description"] for tool in asked[0].body["tools"] if tool["name"] == "list_spans"]
    assert re.search(r"You see 16 KB of an answer, some \d\d rows: ask with a limit", said)
    first, second = asked[2].results
    header, _, shown = first.partition("\n")
    rows = re.fullmatch(r"\[q1\] rows 1–(\d+) of 100 in spans; ask again with limit \1 to .*", header)
    assert rows is not None, header
    assert len(json.loads(shown)["spans"]) == int(rows[1]) >= 10
    # The page that fits comes whole, with a cursor that goes on behind its own last row.
    page = json.loads(second.removeprefix("[q2] "))
    assert len(page["spans"]) == int(rows[1])
    assert page["next_cursor"]
