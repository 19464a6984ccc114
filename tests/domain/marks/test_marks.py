"""Laws of marks: what each one states of a trace, and where it stays silent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from svc.domain.detect.detectors import settled_trace
from svc.domain.detect.detectors.settled_trace import SettledTrace
from svc.domain.marks.forms import demanded_blocks
from svc.domain.marks.rules import TRACE_MARKS, marks_of
from svc.domain.marks.table import EVIDENCE_MARKS, MARK_NAMES, MARKS, marks_table
from tests.domain.detect.detectors.traces import agent, called, chat, settled, wire

SEARCH: dict[str, Any] = {
    "type": "object",
    "required": ["query"],
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer"},
        "order": {"enum": ["new", "old"]},
        "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    },
    "additionalProperties": False,
}


FUNCTION = {"type": "function", "function": {"name": "search", "parameters": SEARCH}}
GEMINI = {
    "name": "search",
    "parameters": {"type": "OBJECT", "required": ["query"], "properties": {"query": {"type": "STRING"}}},
}


def offer(schema: Any = SEARCH, name: str = "search") -> dict[str, Any]:
    """The attributes of a model call to which one tool was offered."""
    definition = {"type": "function", "name": name, "description": "finds", "parameters": schema}
    return {"gen_ai.tool.definitions": json.dumps([definition])}


def asks(number: int, *calls: Any, offered: Any = None, **fields: Any) -> Any:
    """A model call that asks for tools: pairs of id and arguments, or triples with the name."""
    parts = [
        {
            "type": "tool_call",
            "id": call[0],
            "name": call[2] if len(call) > 2 else "search",
            "arguments": call[1],
        }
        for call in calls
    ]
    return chat(number, parts, attributes=offer() if offered is None else offered, **fields)


def answers(
    number: int,
    call_id: str | None,
    arguments: Any = None,
    result: Any = None,
    tool: str = "search",
    **fields: Any,
) -> Any:
    """The tool's span."""
    attributes = dict(fields.pop("attributes", {}))
    if call_id is not None:
        attributes["gen_ai.tool.call.id"] = call_id
    if result is not None:
        attributes["gen_ai.tool.call.result"] = result
    return called(number, tool, arguments, attributes=attributes, **fields)


def fails(number: int, call_id: str | None, message: str, error: str = "Timeout", **fields: Any) -> Any:
    return answers(
        number,
        call_id,
        fields.pop("arguments", {"query": "a"}),
        attributes={"error.type": error},
        status_code=2,
        status_message=message,
        **fields,
    )


def stated(*spans: Any, **fields: Any) -> list[tuple[str, int | None, int]]:
    """Marks as name, number of the cause and of the effect."""
    return of_trace(settled(*spans, **fields))


def of_trace(trace: SettledTrace) -> list[tuple[str, int | None, int]]:
    return [
        (
            mark.name,
            None if mark.cause is None else int.from_bytes(mark.cause, "big"),
            int.from_bytes(mark.effect, "big"),
        )
        for mark in marks_of(trace)
    ]


# --- the table --------------------------------------------------------------------------------------------


def test_every_mark_says_a_fact_and_what_it_is_worth() -> None:
    assert tuple(MARKS) == MARK_NAMES
    for name, kind in MARKS.items():
        assert kind.name == name
        assert kind.sentence.endswith(".")
        assert kind.precision is None or 0 < kind.precision <= 1
        assert kind.version >= 1
    rates = {name for name, kind in MARKS.items() if kind.rate_only}
    assert rates == {*EVIDENCE_MARKS, "form_broken"}
    assert not MARKS["claim_without_call"].opens_finding
    # A fact whose worth nobody measured.
    assert not MARKS["retry_of_same_failure"].opens_finding
    assert MARKS["args_break_schema"].confidence == "0.62"
    assert len(marks_table().splitlines()) == 2 + len(MARKS)


def test_a_trace_of_a_healthy_agent_has_no_marks() -> None:
    assert (
        stated(
            agent(),
            asks(2, ("a", {"query": "tea", "limit": 3}), parent=1, at_s=1),
            answers(3, "a", {"query": "tea", "limit": 3}, {"rows": [1]}, parent=1, at_s=3),
            asks(4, ("b", {"query": "tea", "limit": 5}), parent=1, at_s=5),
            answers(5, "b", {"query": "tea", "limit": 5}, {"rows": [1]}, parent=1, at_s=7),
            chat(6, "According to the records there is one tea.", attributes=offer(), parent=1, at_s=9),
        )
        == []
    )


def test_a_trace_without_payloads_says_only_what_its_rows_say() -> None:
    spans = (
        agent(),
        asks(2, ("a", {}), parent=1, at_s=1),
        fails(3, "a", "timed out after 3 s", parent=1, at_s=3),
        asks(4, ("b", {}), parent=1, at_s=5),
        fails(5, "b", "timed out after 4 s", parent=1, at_s=7),
    )
    assert ("retry_of_same_failure", 4, 5) in stated(*spans)
    assert stated(*spans, payloads=False) == [("retry_of_same_failure", 4, 5)]


def test_the_marks_of_a_trace_are_bounded() -> None:
    spans = [agent()]
    for turn in range(TRACE_MARKS + 10):
        spans.append(asks(2 * turn + 2, (f"c{turn}", {}), parent=1, at_s=4.0 * turn + 1))
        spans.append(answers(2 * turn + 3, f"c{turn}", {}, parent=1, at_s=4.0 * turn + 3))
    assert len(stated(*spans)) == TRACE_MARKS


# --- args_break_schema ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "`query` is required and missing"),
        ({"query": 7}, "`query` has the wrong type"),
        ({"query": "a", "limit": "5"}, "`limit` has the wrong type"),
        ({"query": "a", "order": "up"}, "`order` is none of the values allowed"),
        ({"query": "a", "since": 5}, "`since` has none of the forms allowed"),
        ({"query": "a", "page": 2}, "`page` is no property of the tool"),
        ('{"query": null}', "`query` has the wrong type"),
    ],
)
def test_arguments_that_break_the_schema_are_stated_at_the_tool_and_its_model_call(
    arguments: Any, words: str
) -> None:
    trace = settled(
        agent(),
        asks(2, ("a", arguments), parent=1, at_s=1),
        answers(3, "a", arguments, parent=1, at_s=3),
    )
    assert of_trace(trace) == [("args_break_schema", 2, 3)]
    (mark,) = marks_of(trace)
    assert mark.detail == words
    assert mark.sentence.endswith(f"offered with the tool: {words}.")
    assert mark.call_site_id == "writer"


def test_arguments_of_a_call_without_a_span_are_stated_at_the_model_call() -> None:
    assert stated(asks(2, ("a", {"limit": 1}))) == [("args_break_schema", 2, 2)]


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.tool.definitions": json.dumps([FUNCTION])},
        {"gen_ai.tool.definitions": json.dumps([{"name": "search", "input_schema": SEARCH}])},
        {"gen_ai.tool.definitions": [{"type": "function", "name": "search", "parameters": SEARCH}]},
        {"ai.prompt.tools": [json.dumps({"type": "function", "name": "search", "inputSchema": SEARCH})]},
        {"llm.tools.0.tool.json_schema": json.dumps(FUNCTION)},
        {"llm.request.functions.0.name": "search", "llm.request.functions.0.parameters": json.dumps(SEARCH)},
        {"gen_ai.tool.definitions": json.dumps([{"functionDeclarations": [GEMINI]}])},
    ],
)
def test_definitions_are_read_as_each_instrumentation_writes_them(attributes: dict[str, Any]) -> None:
    assert stated(asks(2, ("a", {"limit": 1}), offered=attributes)) == [("args_break_schema", 2, 2)]
    assert stated(asks(2, ("a", {"query": "a"}), offered=attributes)) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "a", "limit": 3, "order": "new", "since": None},
        {"query": "a", "limit": 3.0},
        # A format is left to whoever knows it.
        {"query": "a", "since": "yesterday"},
        # Cut, no object, nothing, or without what somebody removed.
        '{"query": "a", "lim',
        "tea",
        [1],
        None,
        "",
        {"query": "a", "limit": "[REDACTED]"},
        {"limit": 3, "note": "this was cut…"},
    ],
)
def test_arguments_that_hold_or_were_not_captured_are_not_stated(arguments: Any) -> None:
    assert stated(asks(2, ("a", arguments))) == []


@pytest.mark.parametrize(
    "schema",
    [
        # Nothing to break, nothing that is JSON Schema, or rules that not all readers understand alike.
        {},
        True,
        "query: string",
        {"type": "dict", "properties": {"limit": {"type": "str"}}},
        {"type": "object", "properties": {"limit": {"pattern": "^[a-z]$"}}},
        {
            "type": "object",
            "properties": {"limit": {"type": "string", "nullable": True, "$ref": "#/$defs/x"}},
        },
        {"type": "object", "properties": {"limit": {"allOf": [{"type": "string"}], "nullable": True}}},
        {"type": "object", "additionalProperties": False, "patternProperties": {"^l": {}}},
        {"not": {"required": ["limit"]}},
        {"if": {"required": ["limit"]}, "then": {"required": ["query"]}},
        {"$ref": "#/$defs/search"},
        {"$ref": "https://example.com/schema.json"},
        {"type": "object", "properties": {"limit": {"$ref": "#/$defs/none"}}},
        # Of itself, which must not be followed for ever.
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_schema_of_which_nothing_is_certain_breaks_on_nothing(schema: Any) -> None:
    assert stated(asks(2, ("a", {"limit": None}), offered=offer(schema))) == []


def test_a_schema_is_followed_into_its_own_definitions() -> None:
    schema = {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "$defs": {
            "node": {"type": "object", "required": ["id"], "properties": {"next": {"$ref": "#/$defs/node"}}}
        },
    }
    assert stated(asks(2, ("a", {"node": {}}), offered=offer(schema))) == [("args_break_schema", 2, 2)]
    assert stated(asks(2, ("a", {"node": {"id": 1, "next": {}}}), offered=offer(schema))) == []


def test_a_schema_beyond_the_bounds_breaks_on_nothing() -> None:
    deep: Any = {"type": "string"}
    for _ in range(100):
        deep = {"type": "object", "properties": {"limit": deep}}
    wide = {"type": "object", "properties": {f"p{n}": {} for n in range(9_000)}, "required": ["p0"]}
    for schema in (deep, wide):
        assert stated(asks(2, ("a", {"limit": 3}), offered=offer(schema))) == []


def test_a_tool_that_was_not_offered_or_offered_twice_breaks_nothing() -> None:
    other = offer(name="lookup")
    twice = {"gen_ai.tool.definitions": json.dumps([{"name": "search", "parameters": SEARCH}] * 2)}
    for offered in (other, twice, {"gen_ai.tool.definitions": "search, lookup"}):
        assert stated(asks(2, ("a", {"limit": 1}), offered=offered)) == []


def test_schemas_of_one_call_say_nothing_of_another() -> None:
    loose = offer({"type": "object"})
    assert stated(asks(2, ("a", {"query": "a"})), asks(4, ("b", {}), offered=loose, at_s=3)) == []


# --- same_call_again --------------------------------------------------------------------------------------


def twice(*, first: Any = "x", second: Any = "x", between: tuple[Any, ...] = (), **fields: Any) -> list[Any]:
    arguments = fields.get("arguments", {"query": "a"})
    return [
        agent(),
        asks(2, ("a", {"query": "a"}), parent=1, at_s=1),
        answers(3, "a", {"query": "a"}, first, parent=1, at_s=3, took_s=fields.get("took_s", 1.0)),
        *between,
        asks(6, ("b", arguments), parent=1, at_s=9),
        answers(7, fields.get("call_id", "b"), arguments, second, parent=1, at_s=11),
    ]


def test_the_same_call_with_the_same_answer_is_stated_of_the_second() -> None:
    assert stated(*twice()) == [("same_call_again", 6, 7)]


@pytest.mark.parametrize(
    "spans",
    [
        # Something changed the answer, or nobody knows.
        twice(second="y"),
        twice(first=None),
        twice(second=None),
        twice(arguments={"query": "b"}),
        # Another tool ran in between, whose work the second call may have waited for.
        twice(between=(answers(5, None, {"id": 1}, "done", tool="store", parent=1, at_s=5),)),
        # Both at once, as agents do that ask for several.
        twice(took_s=20.0),
        # One call that two instrumentations recorded.
        twice(call_id="a"),
    ],
)
def test_another_call_is_not_the_same_again(spans: list[Any]) -> None:
    assert [mark for mark in stated(*spans) if mark[0] == "same_call_again"] == []


def test_of_three_same_calls_two_are_stated() -> None:
    spans = [*twice(), asks(8, ("c", {"query": "a"}), parent=1, at_s=13)]
    spans.append(answers(9, "c", {"query": "a"}, "x", parent=1, at_s=15))
    assert stated(*spans) == [("same_call_again", 6, 7), ("same_call_again", 8, 9)]


# --- retry_of_same_failure --------------------------------------------------------------------------------


def retry(second: Any, *between: Any) -> list[Any]:
    return [
        agent(),
        asks(2, ("a", {"query": "a"}), parent=1, at_s=1),
        fails(3, "a", "no connection to 10.0.0.7 after 3000 ms", parent=1, at_s=3),
        *between,
        asks(6, ("b", {"query": "a"}), parent=1, at_s=9),
        second,
    ]


def test_a_failure_that_comes_again_is_stated_of_the_second() -> None:
    again = fails(7, "b", "no connection to 10.0.0.9 after 2100 ms", parent=1, at_s=11)
    assert stated(*retry(again)) == [("retry_of_same_failure", 6, 7)]


@pytest.mark.parametrize(
    "spans",
    [
        retry(fails(7, "b", "access denied", parent=1, at_s=11)),
        retry(fails(7, "b", "no connection to 10.0.0.9 after 2100 ms", "Refused", parent=1, at_s=11)),
        retry(fails(7, "b", "", parent=1, at_s=11)),
        retry(answers(7, "b", {"query": "a"}, "x", parent=1, at_s=11)),
        retry(fails(7, "b", "no connection to 10.0.0.9 after 2100 ms", tool="other", parent=1, at_s=11)),
        # Something was repaired in between.
        retry(
            fails(7, "b", "no connection to 10.0.0.9 after 2100 ms", parent=1, at_s=11),
            answers(5, None, {}, "done", tool="reconnect", parent=1, at_s=5),
        ),
    ],
)
def test_another_failure_is_no_retry_of_the_same(spans: list[Any]) -> None:
    assert stated(*spans) == []


# --- http_error_in_ok_result ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result",
    [
        "404 Not Found",
        "HTTP/1.1 502 Bad Gateway\r\nServer: nginx\r\n\r\n",
        "Error 403: Forbidden",
        "Error fetching the webpage: 404 Client Error: Not Found for url: https://example.com/a",
        "<html><head><title>503 Service Temporarily Unavailable</title></head></html>".replace(
            "Temporarily ", ""
        ),
        {"status_code": 429, "text": ""},
        {"status": 500, "body": "oops", "headers": {}},
        {"content": [{"type": "text", "text": "403 Forbidden"}]},
    ],
)
def test_an_http_error_in_a_successful_result_is_stated(result: Any) -> None:
    trace = settled(
        agent(),
        asks(2, ("a", {"query": "a"}), parent=1, at_s=1),
        answers(3, "a", {"query": "a"}, result, parent=1, at_s=3),
    )
    assert of_trace(trace) == [("http_error_in_ok_result", 2, 3)]
    assert marks_of(trace)[0].detail.startswith("status ")


@pytest.mark.parametrize(
    "result",
    [
        "200 OK",
        "404 results for tea",
        "404 Not Found - Wikipedia, the free encyclopedia",
        "The page said 404 Not Found when I opened it.",
        # A page about the error, which is long.
        "404 Not Found\n" + "The status code says that the server cannot find it. " * 40,
        "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: x - Stack Overflow",
        "<html><head><title>How to fix 404 Not Found errors</title></head></html>",
        "500 Internal Server Errors explained",
        {"status": 404, "order": "A-1"},
        {"status_code": 200, "error_pages": ["404 Not Found"]},
        {"results": [{"title": "404 Not Found"}]},
        {"room": 404},
        ["404 Not Found"],
        "",
    ],
)
def test_a_result_that_speaks_of_errors_is_no_error(result: Any) -> None:
    assert stated(answers(3, "a", {"query": "a"}, result)) == []


def test_a_call_that_is_recorded_as_failed_is_no_successful_result() -> None:
    failing = answers(
        3, "a", {"query": "a"}, "404 Not Found", attributes={"error.type": "Http"}, status_code=2
    )
    assert stated(failing) == []


# --- tool_broken_inside -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message", "fault"),
    [
        ("UnboundLocalError", "cannot access local variable 'page'", "UnboundLocalError"),
        ("builtins.ModuleNotFoundError", "No module named 'bs4'", "ModuleNotFoundError"),
        ("ToolError", "Error executing tool: NameError: name 'pdf' is not defined", "NameError"),
        (
            "FileNotFoundError",
            "[Errno 2] No such file or directory: '/app/prompts/search.txt'",
            "FileNotFoundError",
        ),
    ],
)
def test_a_fault_of_the_tools_own_code_is_stated_with_its_class(error: str, message: str, fault: str) -> None:
    trace = settled(
        agent(),
        asks(2, ("a", {"query": "a"}), parent=1, at_s=1),
        fails(3, "a", message, error, parent=1, at_s=3),
    )
    assert of_trace(trace) == [("tool_broken_inside", 2, 3)]
    assert marks_of(trace)[0].detail == fault


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        ("Timeout", "timed out", {"query": "a"}),
        ("ValueError", "the query is empty", {"query": ""}),
        ("ToolError", "the user asked what an ImportError is", {"query": "a"}),
        # The file that the model asked for, and code that the model wrote.
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/tmp/a.txt'", {"path": "/tmp/a.txt"}),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/a.txt'", {"name": "A.TXT"}),
        ("FileNotFoundError", "the file is gone", {"query": "a"}),
        ("NameError", "name 'x' is not defined", {"code": "print(x)"}),
        ("ModuleNotFoundError", "No module named 'pandas'", {"python_code": "import pandas"}),
    ],
)
def test_an_error_that_the_arguments_may_have_caused_is_not_the_tools_own(
    error: str, message: str, arguments: Any
) -> None:
    assert stated(fails(3, "a", message, error, arguments=arguments)) == []


def test_of_unknown_arguments_nobody_knows_whether_they_held_code() -> None:
    broken = answers(3, "a", attributes={"error.type": "NameError"}, status_code=2)
    assert stated(broken) == []


# --- claim_without_call -----------------------------------------------------------------------------------

QUESTION = {"role": "user", "parts": [{"type": "text", "content": "Open?"}]}
ASKED = {"gen_ai.input.messages": json.dumps([QUESTION])}
HEARD = {
    "gen_ai.input.messages": json.dumps(
        [
            QUESTION,
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "z", "response": "yes"}]},
        ]
    )
}


@pytest.mark.parametrize(
    "answer",
    [
        "I verified the order: it is open.",
        "I have just checked. I've already confirmed that it is open.",
        "I’ve looked up the shop.",
        "According to the latest search results it is open.",
    ],
)
def test_a_claim_before_any_tool_answered_is_stated(answer: str) -> None:
    trace = settled(agent(), chat(2, answer, attributes=offer() | ASKED, parent=1, at_s=1))
    assert of_trace(trace) == [("claim_without_call", 2, 2), ("answer_without_evidence", 2, 2)]


@pytest.mark.parametrize(
    "answer",
    [
        "I can verify the order. Shall I?",
        "I have not verified it.",
        "Once I verified the address I could tell.",
        'You wrote "I verified it".',
        "According to your message it is open.",
        "It is open.",
    ],
)
def test_an_answer_that_claims_nothing_is_not_stated(answer: str) -> None:
    trace = settled(agent(), chat(2, answer, attributes=offer() | ASKED, parent=1, at_s=1))
    assert of_trace(trace) == [("answer_without_evidence", 2, 2)]


CLAIM = "I verified the order: I'll assume it is open."


@pytest.mark.parametrize(
    "spans",
    [
        # No tools, or one that the provider runs itself.
        [agent(), chat(2, CLAIM, parent=1, at_s=1)],
        [
            agent(),
            chat(
                2,
                CLAIM,
                attributes={
                    "gen_ai.tool.definitions": json.dumps([{"type": "web_search"}, {"name": "search"}])
                },
                parent=1,
                at_s=1,
            ),
        ],
        # A tool answered: here, in an earlier turn, or without a span of its own.
        [
            agent(),
            answers(3, "a", {"query": "a"}, "x", parent=1, at_s=1),
            chat(4, CLAIM, attributes=offer(), parent=1, at_s=3),
        ],
        [agent(), chat(2, CLAIM, attributes=offer() | HEARD, parent=1, at_s=1)],
        [
            agent(),
            asks(2, ("a", {"query": "a"}), parent=1, at_s=1),
            chat(4, CLAIM, attributes=offer(), parent=1, at_s=3),
        ],
        # Nobody knows what the model was given.
        [agent(), chat(2, CLAIM, attributes=offer(), parent=1, at_s=1)],
        # Documents were retrieved.
        [
            agent(),
            wire(3, name="retrieve", attributes={"openinference.span.kind": "RETRIEVER"}, parent=1, at_s=1),
            chat(4, CLAIM, attributes=offer(), parent=1, at_s=3),
        ],
    ],
)
def test_a_claim_that_something_may_stand_behind_is_not_stated(spans: list[Any]) -> None:
    assert stated(*spans) == []


# --- hedge_without_evidence -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        "I'll assume that it is open.",
        "I assume it opens at nine.",
        "I am assuming a shop in Rome.",
        "Let’s simulate the search.",
        "Here are simulated results: open.",
        "Using hypothetical data, it is open.",
    ],
)
def test_an_assumption_before_any_tool_answered_is_stated(answer: str) -> None:
    trace = settled(agent(), chat(2, answer, attributes=offer() | ASKED, parent=1, at_s=1))
    assert of_trace(trace) == [("hedge_without_evidence", 2, 2), ("answer_without_evidence", 2, 2)]


@pytest.mark.parametrize(
    "answer",
    [
        "I won't assume that it is open.",
        "Should I assume that it is open?",
        'You said "I assume it is open".',
        "The model assumes a normal distribution.",
        "We can simulate it with the tool. Shall I?",
        "If I assume nine, it is closed.",
        "I do not rely on it, never with simulated data.",
    ],
)
def test_an_answer_that_assumes_nothing_is_not_stated(answer: str) -> None:
    trace = settled(agent(), chat(2, answer, attributes=offer() | ASKED, parent=1, at_s=1))
    assert ("hedge_without_evidence", 2, 2) not in of_trace(trace)


def test_a_failed_call_and_one_that_asks_for_a_tool_are_no_answers() -> None:
    said = {"attributes": offer() | ASKED, "parent": 1, "at_s": 1}
    assert stated(agent(), chat(2, "Hm.", status_code=2, **said)) == []
    assert stated(agent(), chat(2, "", **said)) == []


# --- form_broken ------------------------------------------------------------------------------------------


def told_to(*sentences: str) -> dict[str, Any]:
    return {"gen_ai.system_instructions": json.dumps([{"type": "text", "content": " ".join(sentences)}])}


WRAPPED = told_to("You sell tea.", "Always wrap your answer in <reply> tags.")


@pytest.mark.parametrize(
    ("prompt", "blocks"),
    [
        ("Always wrap your answer in <reply> tags.", ("<reply>",)),
        ("You must put every response inside `<Reply>` and `</Reply>`", ("<reply>",)),
        ("Every reply is enclosed within <a> and </a>; each answer stands in <b>.", ("<a>", "<b>")),
        ("Your entire output must be in a ```json block.", ("```",)),
        # Of one answer, on a condition, forbidden, or an example.
        ("Put your final answer in <reply> tags.", ()),
        ("If you know it you must answer in <reply> tags.", ()),
        ("You must never answer in <reply> tags.", ()),
        ("For example, always answer in <reply> tags.", ()),
        ("You may put each answer in <reply> tags.", ()),
        ("You must answer in <reply> tags when asked.", ()),
        ("The documents stand in <doc> tags.", ()),
        ("You must answer.\nThe user writes in <question>.", ()),
        ("Answer in <reply> tags or in <none>.", ()),
    ],
)
def test_a_demand_is_one_of_every_answer_without_a_condition(prompt: str, blocks: tuple[str, ...]) -> None:
    assert demanded_blocks(prompt) == blocks


def test_an_answer_without_the_demanded_block_is_stated() -> None:
    spans = [
        agent(),
        chat(2, "<reply>Yes.</reply>", attributes=WRAPPED, parent=1, at_s=1),
        chat(3, "No.", attributes=WRAPPED, parent=1, at_s=3),
        chat(4, "Never.", attributes=WRAPPED, parent=1, at_s=5),
    ]
    trace = settled(*spans)
    assert of_trace(trace) == [("form_broken", 3, 3), ("form_broken", 4, 4)]
    assert marks_of(trace)[0].sentence == (
        "The prompt demands a block of every answer, and this answer has none: `<reply>`."
    )


def test_a_block_that_no_answer_of_a_call_site_has_is_stated_once() -> None:
    spans = [chat(n, "No.", attributes=WRAPPED, parent=1, at_s=n) for n in range(2, 6)]
    assert stated(agent(), *spans) == [("form_broken", 2, 2)]


@pytest.mark.parametrize(
    "span",
    [
        chat(2, "<REPLY >Yes.", attributes=WRAPPED, parent=1),
        # Where it is told to stop, the end is missing.
        chat(2, "Yes.</reply>", attributes=WRAPPED, parent=1),
        chat(2, "", attributes=WRAPPED, parent=1),
        chat(2, "Yes", attributes=WRAPPED | {"gen_ai.response.finish_reasons": ["length"]}, parent=1),
        chat(2, "No.", attributes=WRAPPED, parent=1, status_code=2),
        asks(2, ("a", {"query": "a"}), offered=WRAPPED, parent=1),
    ],
)
def test_an_answer_that_holds_the_block_or_is_none_is_not_stated(span: Any) -> None:
    assert "form_broken" not in [name for name, _, _ in stated(agent(), span)]


def test_what_a_prompt_demands_is_known_however_many_prompts_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settled_trace, "_AGAIN", 3)
    for n in range(12):
        prompt = told_to("Always wrap your answer in <reply> tags.", "abcdefghijkl"[n // 2])
        assert stated(agent(), chat(2, "No.", attributes=prompt, parent=1)) == [("form_broken", 2, 2)]


# --- who asked --------------------------------------------------------------------------------------------


def broken(number: int, call_id: str | None, **fields: Any) -> Any:
    return fails(number, call_id, "cannot access local variable", "UnboundLocalError", **fields)


def test_the_cause_is_the_model_call_that_asked_by_id_wherever_it_stands() -> None:
    assert stated(
        agent(),
        asks(2, ("a", {"query": "a"}), parent=1, at_s=1),
        asks(3, ("b", {"query": "b"}), parent=1, at_s=2),
        wire(4, name="tools", parent=1, at_s=3, took_s=5),
        broken(5, "a", parent=4, at_s=4),
    ) == [("tool_broken_inside", 2, 5)]


def test_without_ids_it_is_the_nearest_earlier_one_beside_the_tool_or_the_one_above() -> None:
    beside = [
        agent(),
        asks(2, (None, {"query": "a"}), parent=1, at_s=1),
        asks(3, (None, {"query": "b"}), parent=1, at_s=3),
        broken(4, None, parent=1, at_s=5),
        asks(5, (None, {"query": "c"}), parent=1, at_s=7),
    ]
    assert stated(*beside) == [("tool_broken_inside", 3, 4)]
    above = [
        agent(),
        asks(2, (None, {"query": "a"}), parent=1, at_s=1, took_s=9),
        broken(3, None, parent=2, at_s=2),
    ]
    assert stated(*above) == [("tool_broken_inside", 2, 3)]


def test_nobody_is_blamed_who_asked_for_something_else() -> None:
    assert stated(
        agent(), asks(2, ("x", {}, "other"), parent=1, at_s=1), broken(3, None, parent=1, at_s=3)
    ) == [("tool_broken_inside", None, 3)]
    assert stated(agent(), chat(2, "Hello.", parent=1, at_s=1), broken(3, None, parent=1, at_s=3)) == [
        ("tool_broken_inside", None, 3)
    ]
