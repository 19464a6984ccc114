"""Laws that hold whatever dialect a span speaks."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import svc.domain.dialects as table
from svc.domain.dialects import DIALECTS, PRECEDENCE, read, read_details
from svc.domain.dialects.dialect import Detail, Dialect, Field, Found
from svc.domain.dialects.understood import understood
from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire
from tests.domain.dialects.speaking import CONVERSATIONS, USAGES
from tests.domain.intake.test_mapping import hostile, values
from tests.examples import examples

ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Paris?"},
]
CALLS = [{"id": "call_1", "name": "look", "arguments": '{"city": "Paris"}'}]
ANSWERED = [{"role": "assistant", "content": "Let me look.", "tool_calls": CALLS}]


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_every_dialect_tells_one_conversation_alike(dialect: str) -> None:
    said = CONVERSATIONS[dialect](ASKED, ANSWERED)
    row = mapped(said)
    assert row.kind == "llm"
    assert (row.input_preview, row.output_preview) == ("Weather in Paris?", "Let me look.")
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", "call_1")]
    payload = payload_of(wire(said))
    assert payload["input"] == [
        {"role": message["role"], "parts": [{"type": "text", "text": message["content"]}]}
        for message in ASKED
    ]
    assert payload["output"] == [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_call", "id": "call_1", "name": "look", "arguments": {"city": "Paris"}},
            ],
        }
    ]


amounts = st.integers(0, 10**7)


@pytest.mark.parametrize("dialect", USAGES)
@settings(max_examples=examples(30))
@given(plain=amounts, read_=amounts, written=amounts, said=amounts, thought=amounts)
def test_every_dialect_fills_the_same_buckets_to_the_token(
    dialect: str, plain: int, read_: int, written: int, said: int, thought: int
) -> None:
    kind, usage = USAGES[dialect]
    row = mapped({**kind, **usage(plain + read_ + written, said + thought, read_, written, thought)})
    assert row.kind == "llm"
    assert buckets(row) == (plain, said, read_, written, thought)


# --- hostile forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_an_unknown_role_and_content_of_any_type_are_read_all_the_same(dialect: str) -> None:
    for content in ("x", '{"a": 1}', "[1", "", "\x00"):
        said = CONVERSATIONS[dialect](
            [{"role": "wizard", "content": content}], [{"role": "Oracle", "content": content}]
        )
        assert mapped(said).kind == "llm"
        payload_of(wire(said))


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_messages_of_five_megabytes_are_read_in_bounded_time(dialect: str) -> None:
    asked = [{"role": "user", "content": "x" * 50_000} for _ in range(100)]
    said = CONVERSATIONS[dialect](asked, [{"role": "assistant", "content": "y" * 100_000}])
    start = time.process_time()
    row = mapped(said)
    payload = payload_of(wire(said))
    # Measured 2026-11: 0.1 s at most.
    assert time.process_time() - start < 3
    assert (row.input_preview, row.output_preview) == ("x" * 200, "y" * 200)
    assert len(payload["input"]) == 100


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_of_ten_thousand_tool_calls_a_thousand_are_kept_in_bounded_time(dialect: str) -> None:
    calls = [{"id": f"c{i}", "name": "t", "arguments": "{}"} for i in range(10_000)]
    said = CONVERSATIONS[dialect](ASKED, [{"role": "assistant", "content": "all", "tool_calls": calls}])
    start = time.process_time()
    row = mapped(said)
    payload = payload_of(wire(said))
    # Measured 2026-11: 0.3 s at most.
    assert time.process_time() - start < 5
    assert [call.call_id for call in row.tool_calls] == [f"c{i}" for i in range(1000)]
    assert len(payload["output"][0]["parts"]) == 10_001


@pytest.mark.parametrize("prefix", ["llm.input_messages.{}.message.", "gen_ai.prompt.{}."])
def test_numbered_keys_of_any_number_are_read_in_bounded_time(prefix: str) -> None:
    said: dict[str, Any] = {"openinference.span.kind": "LLM", "llm.request.type": "chat"}
    for number in (
        *range(20_000, 0, -1),
        4294967295,
        2**63,
        "9" * 400,
        "__proto__",
        "constructor",
        "-1",
        "²",
    ):
        said[prefix.format(number) + "role"] = "user"
        said[prefix.format(number) + "content"] = f"n{number}"
    start = time.process_time()
    assert mapped(said).input_preview == f"n{2**63}"
    assert len(payload_of(wire(said))["input"]) == 20_002
    # Measured 2026-11: 0.3 s.
    assert time.process_time() - start < 5


BAD_COUNTS: list[Any] = [
    "12.5",
    "x",
    "",
    -1,
    "-1",
    1.5,
    float("nan"),
    float("inf"),
    "NaN",
    2**63,
    str(2**63),
    True,
    [1],
    {"a": 1},
    None,
]


@pytest.mark.parametrize("dialect", USAGES)
@pytest.mark.parametrize("bad", BAD_COUNTS, ids=repr)
def test_what_is_no_count_is_no_usage(dialect: str, bad: Any) -> None:
    kind, usage = USAGES[dialect]
    said = {
        key: value if type(value) is str and key == "gen_ai.provider.name" else bad
        for key, value in usage(9, 9, 1, 1, 1).items()
        if key != "gen_ai.sdk.version"
    }
    assert buckets(mapped({**kind, **said})) == (None,) * 5


@pytest.mark.parametrize("dialect", USAGES)
def test_counts_are_read_from_texts_and_doubles(dialect: str) -> None:
    kind, usage = USAGES[dialect]
    for spelling in (str, float):
        said = {
            key: spelling(value) if type(value) is int else value
            for key, value in usage(120, 30, 60, 40, 12).items()
        }
        assert buckets(mapped({**kind, **said})) == (20, 18, 60, 40, 12)


def keys_of(dialect: Dialect) -> list[str]:
    keys = {key for group in dialect.keys.values() for key in group}
    keys |= {key.replace("*", "x") for group in dialect.details.values() for key in group}
    return sorted(keys | set(dialect.marks) | {f"{prefix}x" for prefix in dialect.usage_prefixes})


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_no_value_of_any_key_of_a_dialect_breaks_it(dialect: Dialect, data: st.DataObject) -> None:
    said = data.draw(st.dictionaries(st.sampled_from(keys_of(dialect)), values, max_size=10))
    row = mapped(said)
    assert all(bucket is None or bucket >= 0 for bucket in buckets(row))
    json.dumps(payload_of(wire(said)), allow_nan=False)
    found: Found = {}
    for field, _ in () if dialect.derive is None else dialect.derive(said, found):
        assert field in dialect.derives


# --- the table -------------------------------------------------------------------------------------------


def test_reading_costs_one_look_up_an_attribute_however_many_dialects_there_are() -> None:
    class Counting(dict[str, Any]):
        looks = 0

        def get(self, key: str, default: Any = None) -> Any:
            Counting.looks += 1
            return super().get(key, default)

    claims, said = table._CLAIMS, {f"app.key{i}": i for i in range(50)}
    table._CLAIMS = Counting(claims)
    try:
        read(said)
    finally:
        table._CLAIMS = claims
    assert Counting.looks == 50


def test_a_field_goes_to_the_same_dialect_in_whatever_order_attributes_come() -> None:
    said: dict[str, Any] = {}
    for name, encode in CONVERSATIONS.items():
        said |= encode(ASKED, [{"role": "assistant", "content": name}])
        if name in USAGES:
            kind, usage = USAGES[name]
            said |= kind | usage(120, 30, 60, 40, 12)
    forwards, backwards = mapped(said), mapped(dict(reversed(list(said.items()))))
    assert msgspec.structs.asdict(forwards) == msgspec.structs.asdict(backwards)


def test_precedence_names_dialects_that_say_the_field() -> None:
    for field, first in PRECEDENCE.items():
        for dialect in first:
            assert field in dialect.keys or field in dialect.derives, (field, dialect.name)


def test_what_is_understood_is_said_of_each_dialect_once() -> None:
    rows = understood()
    assert list(rows) == [dialect.title for dialect in DIALECTS]
    words = {*get_args(Field), *get_args(Detail), "messages", "documents", "counting", "beside"}
    assert all(row.keys() <= words for row in rows.values())
    said = defaultdict(list)
    for title, row in rows.items():
        for field in row:
            said[field].append(title)
    assert set(said) == words, "a field that nobody says"


def test_details_are_read_in_every_spelling() -> None:
    for reasons in (["stop"], '["stop"]', "stop"):
        assert read_details(wire({"gen_ai.response.finish_reasons": reasons})) == {"finish_reasons": ["stop"]}
    details = read_details(
        wire(
            {
                "gen_ai.agent.name": "planner",
                "agent.name": "node",
                "gen_ai.workflow.name": "trip",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.request.temperature": 0.5,
                "gen_ai.response.time_to_first_chunk": "0.25",
            }
        )
    )
    assert details == {
        "agent": "planner",
        "workflow": "trip",
        "parameters": {"temperature": 0.5},
        "time_to_first_token_ms": 250,
    }


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 10**9, "soon", True, [], None])
def test_what_is_no_time_is_no_time_to_first_token(value: Any) -> None:
    assert read_details(wire({"gen_ai.response.time_to_first_chunk": value})) == {}


def test_a_retrievals_documents_have_rank_score_and_id_in_every_style() -> None:
    kept = [
        {"rank": 1, "id": "d1", "score": 0.9, "text": "sun", "metadata": {"page": 1}},
        {"rank": 2, "id": "d2", "score": 0.1, "text": "rain", "metadata": None},
    ]
    spelled = {
        "openinference.span.kind": "RETRIEVER",
        "retrieval.documents.10.document.id": "d2",
        "retrieval.documents.10.document.content": "rain",
        "retrieval.documents.10.document.score": 0.1,
        "retrieval.documents.2.document.id": "d1",
        "retrieval.documents.2.document.content": "sun",
        "retrieval.documents.2.document.score": 0.9,
        "retrieval.documents.2.document.metadata": '{"page": 1}',
    }
    listed = [
        {"id": "d1", "score": 0.9, "content": "sun", "metadata": {"page": 1}},
        {"id": "d2", "score": "0.1", "content": "rain"},
    ]
    nodes = [
        {"node": {"id_": "d1", "text": "sun", "metadata": {"page": 1}}, "score": 0.9},
        {"node": {"id_": "d2", "text": "rain"}, "score": 0.1},
    ]
    for said in (
        spelled,
        {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": listed},
        {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": json.dumps(listed)},
        {"mlflow.spanType": "RETRIEVER", "mlflow.spanOutputs": json.dumps({"documents": listed})},
        {"langfuse.observation.type": "retriever", "langfuse.observation.output": json.dumps(nodes)},
    ):
        assert payload_of(wire(said))["documents"] == kept


def test_a_failure_is_told_by_status_by_exception_and_by_the_dialects_own_word() -> None:
    assert mapped({"langfuse.observation.level": "ERROR"}, status_code=1).status == "error"
    assert mapped({"span.type": "tool", "success": "false"}).status == "error"
    assert mapped({"success": "false"}).status == "ok"


def test_plans_are_remembered_within_bounds() -> None:
    short = {"gen_ai.request.model": "gpt-4o"}
    for number in range(2 * table._PLANS_BOUND):
        assert read({**short, f"key {number}": 1}).found == {"request_model": "gpt-4o"}
        assert len(table._plans) <= table._PLANS_BOUND
    long = {**short, "k" * table._PLANNED_CHARS: 1}
    assert read(long).found == {"request_model": "gpt-4o"}
    assert tuple(long) not in table._plans


any_keys = hostile | st.dictionaries(
    st.sampled_from(sorted(key for key in table._READ if not key.endswith("*"))), values, max_size=12
)


@given(any_keys)
def test_no_dialect_finds_messages_without_the_keys_it_names(attributes: dict[str, Any]) -> None:
    for dialect in DIALECTS:
        for messages, named in (
            (dialect.input_messages, dialect.input_keys),
            (dialect.output_messages, dialect.output_keys),
        ):
            assert (messages is None) == (not named), dialect.name
            if messages is not None:
                starts = tuple(key[:-1] for key in named if key.endswith("*"))
                others = {
                    key: value
                    for key, value in attributes.items()
                    if key not in named and not key.startswith(starts)
                }
                assert messages(wire(others)) is None, dialect.name


@given(any_keys)
def test_messages_are_those_of_the_first_dialect_spoken_that_says_any(attributes: dict[str, Any]) -> None:
    span, reading = wire(attributes), read(attributes)
    given_, answered, _ = table._sources(reading._plan.spoken)
    assert reading.input_messages(span) == table._first(given_, span)
    assert reading.output_messages(span) == table._first(answered, span)


@given(st.permutations(["gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "other"]))
def test_the_order_of_attributes_decides_nothing(keys: list[str]) -> None:
    said = {key: f"by {key}" for key in keys}
    assert read(said).found == read(dict(sorted(said.items()))).found
