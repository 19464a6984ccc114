"""Laws of agent paths: whose call it is, by the spans above it and nothing else."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.spans.span import Kind
from svc.domain.traces.agent_path import BETWEEN, CALLS, PART_CHARS, STEPS, PathSpan, agent_paths

KINDS: list[Kind] = ["llm", "tool", "agent", "step", "retrieval"]


@attrs.define
class Row:
    span_id: bytes
    parent_span_id: bytes | None
    kind: Kind
    name: str
    agent: str | None = None
    provided_model_name: str | None = None


def row(number: int, kind: Kind, name: str, parent: int | None = None, **fields: str) -> Row:
    return Row(bytes([number]), None if parent is None else bytes([parent]), kind, name, **fields)


def named(span: PathSpan) -> str | None:
    assert isinstance(span, Row)
    return span.agent


def paths(*rows: Row) -> dict[int, str]:
    return {span_id[0]: path for span_id, path in agent_paths(rows, named).items()}


def plain_path(rows: list[Row], call: Row) -> str | None:
    """What a path is, step by step up from the call."""
    by_id = {one.span_id: one for one in rows}
    step, above = None, call
    for _ in rows:
        parent = by_id.get(above.parent_span_id or b"")
        if parent is None or parent is above:
            return None
        if parent.kind == "agent":
            return parent.name if step is None else f"{parent.name}/{step.name}"
        if parent.kind in STEPS and step is None:
            step = parent
        above = parent
    return None


def in_a_circle(rows: list[Row], call: Row) -> bool:
    by_id = {one.span_id: one for one in rows}
    above: Row | None = call
    for _ in range(len(rows) + 1):
        if above is None or above.parent_span_id == above.span_id:
            return False
        above = by_id.get(above.parent_span_id or b"")
    return above is not None


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(-2, 12), st.sampled_from("abc")), max_size=12),
    st.randoms(),
)
def test_a_path_is_the_nearest_agent_and_the_nearest_step_below_it(
    links: list[tuple[Kind, int, str]], chance: object
) -> None:
    rows = [
        row(number, kind, name, None if parent == -1 else parent % 14)
        for number, (kind, parent, name) in enumerate(links)
    ]
    outcome = agent_paths(rows, named)
    shuffled = list(rows)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    for one in rows:
        if one.kind not in CALLS:
            assert one.span_id not in outcome
        elif not in_a_circle(rows, one):
            assert outcome.get(one.span_id) == plain_path(rows, one)
            assert agent_paths(shuffled, named).get(one.span_id) == outcome.get(one.span_id)


def test_a_circle_ends() -> None:
    rows = [row(1, "agent", "a", 2), row(2, "step", "s", 3), row(3, "llm", "chat", 1)]
    assert set(paths(*rows).values()) <= {"a", "a/s"}


def test_an_agent_goes_by_its_own_name_then_by_that_of_its_span() -> None:
    assert paths(row(1, "agent", "invoke_agent", agent="planner"), row(2, "llm", "chat", 1)) == {2: "planner"}
    assert paths(row(1, "agent", "CodeAgent.run"), row(2, "llm", "chat", 1)) == {2: "CodeAgent.run"}


def test_a_name_that_holds_a_model_is_none() -> None:
    call = row(2, "llm", "chat", 1, provided_model_name="gpt-4o")
    assert paths(row(1, "agent", "run", agent="agent on GPT-4o"), call) == {2: "run"}
    assert paths(row(1, "agent", "run gpt-4o", agent="gpt-4o"), call) == {2: "run"}
    assert paths(row(1, "agent", "gpt-4o", agent="gpt-4o"), call) == {2: "agent"}
    # Another model's name begins so.
    assert paths(row(1, "agent", "run", agent="gpt-4o-mini"), call) == {2: "gpt-o-mini"}


def test_what_a_request_changes_is_in_no_path() -> None:
    rows = [row(1, "agent", "run", agent="solver 17"), row(2, "step", "Step 3", 1), row(3, "tool", "look", 2)]
    assert paths(*rows) == {3: "solver/Step"}


def test_steps_above_the_agent_are_in_no_path() -> None:
    rows = [row(1, "agent", "a"), row(2, "step", "s", 1), row(3, "agent", "b", 2), row(4, "llm", "c", 3)]
    assert paths(*rows) == {4: "b"}


def test_a_call_below_no_agent_has_none() -> None:
    rows = [row(1, "step", "s"), row(2, "llm", "c", 1), row(3, "agent", "a", 1), row(4, "llm", "d", 3)]
    assert paths(*rows) == {4: "a"}
    assert paths(row(1, "step", "s"), row(2, "llm", "c", 1)) == {}


def test_a_path_is_short_and_holds_no_sign_that_parts_it_from_its_call_site() -> None:
    rows = [row(1, "agent", "a" * 1_000), row(2, "step", "x › y", 1), row(3, "llm", "c", 2)]
    path = paths(*rows)[3]
    assert len(path) <= 2 * PART_CHARS + 1
    assert BETWEEN not in path
