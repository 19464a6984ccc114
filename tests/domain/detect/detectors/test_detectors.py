"""Laws of the detectors: what of a settled trace each one counts, as a failure or at all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import attrs
import jsonschema_rs
import pytest

from svc.domain.detect.detectors import table
from svc.domain.detect.detectors.base import MEASURES, WITNESSES, Observation, ObserverContext, slot_of
from svc.domain.detect.detectors.malformed_output import LEARNED_FROM, common_shape, learned, shape_of
from svc.domain.detect.detectors.model_change import models_of, new_models
from svc.domain.detect.detectors.new_signature import new_since, signature_of
from svc.domain.detect.detectors.settled_trace import SettledTrace
from svc.domain.detect.detectors.table import DETECTORS, detectors_table, observe
from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from tests.domain.detect.detectors.traces import NOON, agent, called, chat, settled

PLAIN = ObserverContext()


def seen(trace: SettledTrace, measure: str, context: ObserverContext = PLAIN) -> dict[str, list[Observation]]:
    """The observations of a measure, by subject."""
    found = observe(trace, context)
    assert found.failed == {}
    by_subject: dict[str, list[Observation]] = {}
    for one in found.observations:
        if one.measure == measure:
            by_subject.setdefault(one.subject, []).append(one)
    return by_subject


def only(trace: SettledTrace, measure: str, context: ObserverContext = PLAIN) -> Observation:
    ((observation,),) = seen(trace, measure, context).values()
    return observation


def span_id(number: int) -> bytes:
    return number.to_bytes(8, "big")


# --- the table --------------------------------------------------------------------------------------------


def test_every_measure_is_judged_by_a_detector_or_dates_what_is_first_seen() -> None:
    judged = {m for detector in DETECTORS.values() for m in (*detector.measures, *detector.also)}
    assert MEASURES.keys() - judged <= {"seen_release", "seen_prompt", "seen_tools"}
    assert judged <= MEASURES.keys()


def test_what_needs_the_encoder_is_listed_with_the_reason_and_observes_nothing() -> None:
    missing = [detector for detector in DETECTORS.values() if detector.needs is not None]
    assert {detector.name for detector in missing} == {"frustration", "groundedness"}
    assert all(detector.unavailable and detector.observe is None for detector in missing)
    assert all(detector.unavailable is None for detector in DETECTORS.values() if detector.needs is None)


def test_defaults_lie_within_their_clamps() -> None:
    for detector in DETECTORS.values():
        for tunable in detector.tuning.values():
            assert tunable.clamped(tunable.default) == tunable.default
            assert (tunable.clamped(-1), tunable.clamped(1e9)) == (tunable.low, tunable.high)


def test_the_table_names_every_detector_once() -> None:
    rows = detectors_table().splitlines()
    assert len(rows) == 2 + len(DETECTORS)
    assert all(row.startswith(f"| `{name}` | ") for name, row in zip(DETECTORS, rows[2:], strict=True))


def test_a_detector_that_raises_is_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = settled(agent(), called(2, "search", parent=1))
    whole = observe(trace, PLAIN)

    def broken(*_: Any) -> Any:
        yield Observation("loop_rate", "site:x", 1)
        raise LookupError("what it saw")

    loops = attrs.evolve(DETECTORS["agent_loop"], observe=broken)
    monkeypatch.setattr(table, "DETECTORS", {**DETECTORS, "agent_loop": loops})
    left = observe(trace, PLAIN)
    assert left.failed == {"agent_loop": "LookupError"}
    assert set(left.observations) == {o for o in whole.observations if o.measure != "loop_rate"}


def test_nothing_is_observed_of_spans_that_say_nothing() -> None:
    # But that it was called.
    (called_once,) = observe(settled(chat(2, parent=9), payloads=False), PLAIN).observations
    assert (called_once.measure, called_once.failed) == ("model_error_rate", False)


# --- model_error ------------------------------------------------------------------------------------------


def test_a_trace_is_one_unit_of_a_call_site_whose_models_fail_in_any_try() -> None:
    refused = {"error.type": "RateLimitError"}
    trace = settled(
        agent(),
        chat(2, "", parent=1, at_s=400, status_code=2, status_message="slow down", attributes=refused),
        chat(3, "hello", parent=1, at_s=410),
        called(4, "search", parent=1, at_s=420, status_code=2),
    )
    unit = only(trace, "model_error_rate")
    assert (unit.failed, unit.witnesses) == (True, (span_id(2),))
    assert unit.signature == signature_of("RateLimitError", "slow down")
    assert unit.slot == slot_of(NOON) + 1
    well = only(settled(agent(), chat(2, "hello", parent=1)), "model_error_rate")
    assert (well.failed, well.witnesses, well.signature) == (False, (), None)
    assert seen(settled(agent(), called(2, "search", parent=1, status_code=2)), "model_error_rate") == {}


# --- tool_error -------------------------------------------------------------------------------------------


def test_a_trace_is_one_unit_of_a_tool_however_often_it_calls_it() -> None:
    trace = settled(
        agent(),
        called(2, "search", parent=1, at_s=400, status_code=2, attributes={"error.type": "Timeout"}),
        called(3, "search", parent=1, at_s=500),
        called(4, "Book", parent=1, at_s=1),
    )
    tools = seen(trace, "tool_error_rate")
    assert tools.keys() == {"tool:search", "tool:book"}
    (search,), (book,) = tools["tool:search"], tools["tool:book"]
    assert (search.failed, search.witnesses, search.signature) == (True, (span_id(2),), "Timeout")
    assert (book.failed, book.witnesses, book.signature) == (False, (), None)
    assert (book.slot, search.slot) == (slot_of(NOON), slot_of(NOON) + 1)


def test_beside_a_failing_call_stands_the_model_call_that_asked_for_it() -> None:
    def asks(number: int, call_id: str, at_s: float) -> Any:
        part = {"type": "tool_call", "id": call_id, "name": "search", "arguments": {"q": call_id}}
        return chat(number, [part], parent=1, at_s=at_s)

    def answers(number: int, call_id: str, at_s: float, **failing: Any) -> Any:
        attributes = {"gen_ai.tool.call.id": call_id} | ({"error.type": "Timeout"} if failing else {})
        return called(number, "search", parent=1, at_s=at_s, attributes=attributes, **failing)

    trace = settled(
        agent(),
        asks(2, "a", 1),
        answers(3, "a", 3),
        asks(4, "b", 5),
        answers(5, "b", 7, status_code=2),
        # Nobody is known to have asked for it.
        answers(6, "c", 9, status_code=2),
    )
    assert only(trace, "tool_error_rate").witnesses == (span_id(5), span_id(6), span_id(4))


def test_of_many_failing_calls_the_first_stand_and_as_many_that_asked() -> None:
    spans = [agent()]
    for n in range(WITNESSES + 4):
        part = {"type": "tool_call", "id": f"c{n}", "name": "search", "arguments": {}}
        attributes = {"gen_ai.tool.call.id": f"c{n}", "error.type": "Timeout"}
        spans.append(chat(100 + n, [part], parent=1, at_s=4.0 * n + 1))
        spans.append(
            called(200 + n, "search", parent=1, at_s=4.0 * n + 3, attributes=attributes, status_code=2)
        )
    numbers = [int.from_bytes(one, "big") for one in only(settled(*spans), "tool_error_rate").witnesses]
    assert numbers == [*range(200, 200 + WITNESSES), *range(100, 100 + WITNESSES)]


def test_an_empty_result_and_slowness_are_no_failure() -> None:
    assert not only(
        settled(called(2, "search", took_s=900, attributes={"gen_ai.tool.call.result": ""})),
        "tool_error_rate",
    ).failed


def test_ids_in_a_tools_name_make_no_new_tool() -> None:
    names = ("fetch-550e8400-e29b-41d4-a716-446655440000", "fetch-123e4567-e89b-42d3-a456-426614174000")
    assert {next(iter(seen(settled(called(2, name)), "tool_error_rate"))) for name in names} == {
        "tool:fetch-#"
    }
    assert next(iter(seen(settled(called(2, "search_v2")), "tool_error_rate"))) == "tool:search_v2"


def test_a_signature_is_the_kind_of_a_failure_and_quotes_nothing_of_it() -> None:
    one = signature_of("HTTPError", "GET https://a.example/u/17 for 'Ann' failed with 503 after 12.5 s")
    other = signature_of("HTTPError", "GET https://b.example/u/9 for 'Bob' failed with 502 after 3.25 s")
    assert one == other
    assert signature_of("HTTPError", "connection refused") != one
    assert "Ann" not in one
    assert "refused" not in signature_of(None, "connection refused")
    assert signature_of(None, None) == "error"


@attrs.frozen
class Failed:
    slot: int
    trace_id: bytes
    signature: str
    session: str


def failed(signature: str, slots: Iterable[int], sessions: int) -> list[Failed]:
    return [
        Failed(slot, f"{signature}{n}".encode(), signature, f"s{n % sessions}")
        for n, slot in enumerate(slots)
    ]


def test_a_signature_is_new_only_in_enough_traces_and_sessions_of_a_day() -> None:
    usual = failed("old", range(0, 40, 2), 9)

    def since(*others: Failed, share: float = 0.1) -> tuple[int, int] | None:
        return new_since("new", sorted((*usual, *others), key=lambda one: one.slot), share)

    assert since(*failed("new", range(10, 20, 2), 2)) == (10, 18)
    assert since(*failed("new", range(10, 18, 2), 2)) is None
    assert since(*failed("new", range(10, 20, 2), 1)) is None
    # Five in a day, not five in all; and a fifth of what fails, not one among many.
    assert since(*failed("new", range(0, 5 * SLOTS_PER_DAY, SLOTS_PER_DAY), 2)) is None
    assert since(*failed("new", range(30, 40, 2), 2), share=0.3) is None


# --- sizes ------------------------------------------------------------------------------------------------


def test_durations_are_the_roots_own_by_call_site_and_each_tools() -> None:
    trace = settled(agent(took_s=7), called(2, "search", parent=1, took_s=2), called(3, "search", parent=1))
    assert only(trace, "turn_duration").value == 7000
    assert seen(trace, "turn_duration").keys() == {"site:desk"}
    assert [one.value for one in seen(trace, "tool_duration")["tool:search"]] == [2000, 1000]


def test_a_trace_without_a_root_and_a_span_without_an_end_have_no_duration() -> None:
    assert seen(settled(agent(1, parent=9), called(2, "a", parent=1, open_end=True)), "turn_duration") == {}
    assert seen(settled(agent(1, open_end=True)), "turn_duration") == {}
    assert seen(settled(called(2, "a", parent=1, open_end=True)), "tool_duration") == {}


USAGE = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 100}
UNPRICED = {**USAGE, "gen_ai.request.model": "nobody/knows", "gen_ai.response.model": "nobody/knows"}


def test_a_turn_costs_what_its_model_calls_cost_and_no_usage_counts_twice() -> None:
    one = only(settled(agent(), chat(2, parent=1, attributes=USAGE)), "turn_cost").value
    twice = only(
        settled(
            agent(attributes={**USAGE, "gen_ai.usage.input_tokens": 2000, "gen_ai.request.model": "gpt-4o"}),
            chat(2, parent=1, attributes=USAGE),
            chat(3, parent=1, at_s=2, attributes=USAGE),
        ),
        "turn_cost",
    ).value
    assert one is not None
    assert one > 0
    assert twice == pytest.approx(2 * one)


def test_one_unpriced_call_no_price_at_all_or_no_root_leave_the_cost_unknown() -> None:
    priced = chat(2, parent=1, attributes=USAGE)
    assert seen(settled(agent(), priced, chat(3, parent=1, attributes=UNPRICED)), "turn_cost") == {}
    assert seen(settled(agent(), chat(3, parent=1)), "turn_cost") == {}
    assert seen(settled(priced), "turn_cost") == {}
    # A failed call used nothing: that it has no price hides nothing.
    assert seen(settled(agent(), priced, chat(3, parent=1, status_code=2)), "turn_cost") != {}


# --- agent_loop -------------------------------------------------------------------------------------------


def looping(times: int, arguments: Any = '{"q": "a", "n": 1}') -> SettledTrace:
    return settled(agent(), *(called(n, "search", arguments, parent=1, at_s=n) for n in range(2, 2 + times)))


def test_five_calls_with_the_same_arguments_are_a_loop_and_four_are_none() -> None:
    assert not only(looping(4), "loop_rate").failed
    loop = only(looping(5), "loop_rate")
    assert (loop.failed, loop.subject, loop.signature) == (True, "site:desk", "tool:search")
    assert loop.witnesses == tuple(span_id(n) for n in range(2, 7))


def test_arguments_are_the_same_whatever_the_order_of_their_keys_or_their_encoding() -> None:
    said = [
        '{"q":"a","n":1}',
        '{ "n": 1, "q": "a" }',
        {"q": "a", "n": 1},
        {"n": 1, "q": "a"},
        '{"n":1,"q":"a"}',
    ]
    spans = [called(n, "search", arguments, parent=1) for n, arguments in enumerate(said, 2)]
    assert only(settled(agent(), *spans), "loop_rate").failed
    different = [called(n, "search", {"q": n}, parent=1) for n in range(2, 12)]
    assert not only(settled(agent(), *different), "loop_rate").failed


def test_loops_inside_answers_count_where_the_tool_has_no_spans() -> None:
    asked = [{"type": "tool_call", "id": None, "name": "search", "arguments": {"q": 1}}]
    answers = [chat(n, asked, parent=1, at_s=n) for n in range(2, 7)]
    assert only(settled(agent(), *answers), "loop_rate").failed
    spans = [called(n, "search", {"q": 1}, parent=1, at_s=n) for n in range(10, 13)]
    assert not only(settled(agent(), *answers, *spans), "loop_rate").failed


def test_calls_whose_arguments_nobody_captured_are_no_unit() -> None:
    assert seen(looping(9, None), "loop_rate") == {}
    assert seen(settled(agent(), chat(2, "hi", parent=1)), "loop_rate") == {}


# --- cut_output -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS"])
def test_an_answer_that_ran_into_its_limit_is_cut(reason: str) -> None:
    cut = only(
        settled(chat(2, "and then", attributes={"gen_ai.response.finish_reasons": [reason]})), "cut_rate"
    )
    assert (cut.failed, cut.subject, cut.signature, cut.witnesses) == (
        True,
        "site:writer",
        "length",
        (span_id(2),),
    )


def test_a_blank_answer_is_cut_unless_it_calls_a_tool_or_holds_more_than_text() -> None:
    assert only(settled(chat(2, " \n")), "cut_rate").signature == "blank"
    call = [{"type": "tool_call", "id": "c", "name": "search", "arguments": {}}]
    assert not only(settled(chat(2, call)), "cut_rate").failed
    picture = [{"type": "blob", "mime_type": "image/png", "content": "aGk="}]
    assert not only(settled(chat(2, picture)), "cut_rate").failed


def test_an_answer_that_nobody_captured_or_that_failed_is_no_unit() -> None:
    assert seen(settled(chat(2)), "cut_rate") == {}
    assert seen(settled(chat(2, "half", status_code=2)), "cut_rate") == {}
    stopped = settled(chat(2, attributes={"gen_ai.response.finish_reasons": ["stop"]}))
    assert not only(stopped, "cut_rate").failed


# --- malformed_output -------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}}
WITH_SCHEMA = ObserverContext(schemas={"writer": ("abc", jsonschema_rs.validator_for(SCHEMA))})


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ('{"total": 3}', None),
        ('\n{"total": 3, "more": []} ', None),
        ('{"total": "three"}', "against the schema"),
        ("{}", "against the schema"),
        ('{"total": 3', "not JSON"),
        ("It is three.", "not JSON"),
        ('```json\n{"total": 3}\n```', "not JSON"),
    ],
)
def test_under_a_schema_an_answer_is_json_that_fits_or_it_is_malformed(said: str, fault: str | None) -> None:
    one = only(settled(chat(2, said)), "malformed_rate", WITH_SCHEMA)
    assert (one.failed, one.signature) == (fault is not None, fault)
    assert seen(settled(chat(2, said)), "output_shape", WITH_SCHEMA) == {}


def test_steps_on_the_way_to_an_answer_are_not_judged() -> None:
    both = [
        {"type": "text", "content": "let me see"},
        {"type": "tool_call", "id": "c", "name": "s", "arguments": {}},
    ]
    for trace in (settled(chat(2, both)), settled(chat(2, "")), settled(chat(2, "x", status_code=2))):
        assert seen(trace, "malformed_rate", WITH_SCHEMA) == {}
        assert seen(trace, "output_shape") == {}


def test_shapes_are_the_keys_of_objects_and_one_word_for_all_else() -> None:
    assert shape_of('{"b": 1, "a": {"c": 2}}') == shape_of('{"a": [], "b": null}') == '["object","a","b"]'
    assert shape_of('```json\n{"a": 1}\n```') == '["fenced","a"]'
    assert shape_of("[1, 2]") == '["value"]'
    assert shape_of('{"a": 1') == shape_of("hello") == shape_of("") == shape_of("7") == '["prose"]'
    data = json.dumps({f"user {n}": n for n in range(200)})
    assert shape_of(data) == '["object","…"]'
    assert len(shape_of(json.dumps({"k" * 60 + str(n): 1 for n in range(20)}))) < 200


def test_a_trace_has_the_shape_that_all_its_answers_have() -> None:
    a, ab, prose = '["object","a"]', '["object","a","b"]', '["prose"]'
    assert common_shape([ab, ab]) == ab
    assert common_shape([ab, a]) == a
    assert common_shape([ab, prose]) == prose
    assert common_shape([ab, '["fenced","b"]']) == '["fenced","b"]'
    trace = settled(chat(2, '{"a": 1, "b": 2}'), chat(3, '{"a": 1}', at_s=1))
    assert only(trace, "output_shape").detail == a


def test_what_is_learned_is_json_with_the_keys_of_nearly_all_and_prose_teaches_nothing() -> None:
    usual, odd = '["object","id","total"]', '["object","id","note","total"]'
    found = learned({usual: 150, odd: 60, '["object","id"]': 1, '["prose"]': 1})
    assert found is not None
    assert found.keys == {"id", "total"}
    assert found.fits(usual)
    assert found.fits(odd)
    assert found.fits('["object","…"]')
    assert not found.fits('["object","id"]')
    assert not found.fits('["prose"]')
    assert not found.fits('["fenced","id","total"]')
    assert learned({usual: LEARNED_FROM - 1}) is None
    # In nineteen of twenty it is JSON, and what is prose takes nothing away from what JSON has in common.
    mostly = learned({usual: 285, '["prose"]': 15})
    assert mostly is not None
    assert mostly.keys == {"id", "total"}
    assert not mostly.fits('["prose"]')
    assert learned({usual: 284, '["prose"]': 16}) is None


# --- model_change and what is first seen ----------------------------------------------------------------


def test_an_answering_model_is_new_only_where_another_has_answered_for_long_enough() -> None:
    week = 7 * SLOTS_PER_DAY
    usual = [(slot, 10) for slot in range(0, week + 100, 10)]
    swap = [(slot, 10) for slot in range(week, week + 100, 10)]
    assert new_models({"a": usual, "b": swap}, 0.2) == [("b", week, week + 20, 0.6)]
    # Too few calls, too small a share, too young a history, and what was always there.
    assert new_models({"a": usual, "b": [(week, 1)]}, 0.2) == []
    assert new_models({"a": usual, "b": swap}, 0.7) == []
    assert new_models({"a": usual[-20:], "b": swap}, 0.2) == []
    assert new_models({"b": swap}, 0.2) == []
    assert models_of('["gpt-4o","gpt-4o-mini"]') == ("gpt-4o", "gpt-4o-mini")
    assert [models_of(text) for text in ('["gpt-4o",null]', '["other"]', "{", "7")] == [None] * 4


def test_models_releases_prompts_and_tools_are_counted_once_a_trace_and_call_site() -> None:
    told = {
        "gen_ai.system_instructions": [{"type": "text", "content": "Be brief. Today is 2026-11-20."}],
        "gen_ai.tool.definitions": '[{"name": "search", "parameters": {}}]',
    }
    resource = {"service.name": "shop", "service.version": "1.4.2"}
    trace = settled(
        agent(),
        chat(2, "a", parent=1, attributes=told),
        chat(3, "b", parent=1, attributes=told),
        resource=resource,
    )
    assert only(trace, "answered_model").detail == '["gpt-4o","gpt-4o-2024-08-06"]'
    assert only(trace, "seen_release").detail == "1.4.2"
    assert only(trace, "seen_release").subject == "site:desk"
    # In any client's spelling, as the field `release` has it.
    langfuse = settled(chat(2, "a", attributes={"langfuse.release": "1.4.3"}), resource=resource)
    assert only(langfuse, "seen_release").detail == "1.4.3"
    prompt, tools = only(trace, "seen_prompt"), only(trace, "seen_tools")
    assert prompt.subject == tools.subject == "site:writer"
    tomorrow = {
        **told,
        "gen_ai.system_instructions": [{"type": "text", "content": "Be brief. Today is 2026-11-21."}],
    }
    assert only(settled(chat(2, "a", attributes=tomorrow)), "seen_prompt").detail == prompt.detail
    longer = {**told, "gen_ai.system_instructions": [{"type": "text", "content": "Be long."}]}
    assert only(settled(chat(2, "a", attributes=longer)), "seen_prompt").detail != prompt.detail
    inside = {"gen_ai.input.messages": [{"role": "system", "content": "Be brief. Today is 2026-11-20."}]}
    assert seen(settled(chat(2, "a", attributes=inside)), "seen_prompt").keys() == {"site:writer"}


SYSTEM = "You help customers of a shop, today is 2026-11-20."
USER = {"role": "user", "content": "and?"}


@pytest.mark.parametrize(
    ("history", "beside"),
    [
        ([{"role": "system", "content": SYSTEM}, USER], None),
        ([{"role": "system", "parts": [{"type": "text", "content": SYSTEM}]}, USER], None),
        ([{"role": "system", "parts": None, "content": SYSTEM}, USER], None),
        ([{"role": "system", "content": [{"type": "text", "text": SYSTEM}, {"text": "é"}, 7]}, USER], None),
        ([USER, {"role": "Developer", "content": SYSTEM}, {"role": "system", "content": "more"}], None),
        ([{"role": "system", "content": SYSTEM}, USER], "said beside them"),
        ([USER, USER], "said beside them"),
        ([USER], None),
        ([{"role": "system", "content": SYSTEM}], None),
        ([{"role": "system", "parts": []}], None),
        ([{"role": "system"}, USER], None),
        ([{"role": "system", "content": ""}, USER], None),
        ([{"role": "", "type": "system", "content": SYSTEM}, USER], None),
        ([{"type": "SystemMessage", "content": SYSTEM}, USER], None),
        ([{"role": None, "type": "developer", "content": SYSTEM}, USER], None),
        ([{"role": "system", "content": SYSTEM, "message": {"role": "user", "content": "x"}}, USER], None),
        ([{"message": {"role": "system", "content": SYSTEM}}, USER], None),
        ([{"role": "system", "content": SYSTEM}, "bare words"], None),
        ([], None),
    ],
)
def test_a_prompt_is_the_same_whether_its_history_is_opened_or_only_looked_through(
    history: list[Any], beside: str | None
) -> None:
    def prompt(sent: Any) -> list[str]:
        attributes = {"gen_ai.input.messages": sent}
        if beside is not None:
            attributes["gen_ai.system_instructions"] = beside
        found = seen(settled(chat(2, "a", attributes=attributes)), "seen_prompt")
        return [one.detail for of_site in found.values() for one in of_site]

    opened = prompt(history)
    for text in (json.dumps(history), json.dumps(history, indent=1), f" {json.dumps(history)}"):
        assert prompt(text) == opened
    # What msgspec does not read is read all the same: a number beyond a double, and half a character.
    for odd in ("1e999", "NaN", '"\\ud800"'):
        if history:
            said = json.dumps(history)[:-1] + f', {{"role": "user", "content": {odd}}}]'
            assert prompt(said) == prompt([*history, {"role": "user", "content": "?"}])
