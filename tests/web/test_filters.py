"""The filter bar and the range: what is typed, what is asked, and that both come back as they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.refusals import Refused
from svc.web.overview.explore_question import Explored
from svc.web.shell.filters import FIELDS, Filters, Token, quoted, read_filters
from svc.web.shell.ranges import PRESETS, TimeRange, bar_width

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_tokens_ask_and_the_rest_is_searched_for() -> None:
    read = read_filters('status:error model:gpt-4o latency:>5s cost:<$0.5 session:"a b" where is "my order"')
    assert read.asked == {
        "span_status": "error", "one_span": True, "model": "gpt-4o", "slower_than": timedelta(seconds=5),
        "cheaper_than": Decimal("0.5"), "session_id": "a b",
    }  # fmt: skip
    assert read.text == "where is my order"
    assert read.wrong == []


@pytest.mark.parametrize(
    "typed",
    [
        "status:maybe",
        "latency:5",
        "latency:>" + "9" * 30 + "h",
        "cost:>much",
        "kind:banana",
        "unpriced:so",
        "errors:many",
    ],
)
def test_a_value_that_cannot_be_read_is_named_and_asks_for_nothing(typed: str) -> None:
    read = read_filters(typed)
    assert len(read.wrong) == 1
    assert (read.asked, read.tokens, read.text) == ({}, [], "")


def test_a_status_is_of_the_span_that_is_asked_for_and_else_of_the_trace() -> None:
    assert read_filters("status:error").asked == {"status": "error"}
    assert read_filters("status:error user:a").asked == {"status": "error", "user_id": "a"}
    assert read_filters("tool:search -status:error").asked == {
        "attributes": (("tool", "search"),), "one_span": True, "span_status": "ok",
    }  # fmt: skip
    assert read_filters("tool:search trace.status:error").asked == {
        "attributes": (("tool", "search"),), "one_span": True, "status": "error",
    }  # fmt: skip
    both = read_filters("status:error trace.status:ok")
    assert (both.asked, both.wrong) == (
        {"status": "ok"}, ["status and trace.status are both there; trace.status counts"],
    )  # fmt: skip


def test_a_bound_needs_no_colon_and_a_name_with_a_dot_is_told_how_it_is_written() -> None:
    read = read_filters("latency>5s cost<0.1 a>b order.id:5 10.0.0.7:6379 host.example.com:80")
    assert str(read).startswith("latency:>5s cost:<0.1 ")
    assert read.text == "a>b order.id:5 10.0.0.7:6379 host.example.com:80"
    assert [text.rpartition(". ")[2] for text in read.unknown] == [
        "For an attribute of your own, write attr.order.id:…",
        "For an attribute of your own, write attr.host.example.com:…",
    ]
    # What is quoted stays a text.
    for text in ("latency>5s", "-cost<1", "latency:>5s"):
        again = read_filters(str(read_filters(f'"{text}"')))
        assert (again.text, again.tokens) == (text, [])


def test_columns_and_payloads_of_a_span_are_asked_of_the_same_one() -> None:
    read = read_filters('error_type:Late name:"chat x" tool:search payload:"not found" -payload:retry')
    assert not read.wrong
    asked = read.between(None, None)
    assert asked.one_span
    assert asked.span_fields == (("error_type", "Late"), ("name", "chat x"))
    assert asked.attributes == (("tool", "search"), ("payload", "not found"))
    assert asked.without == (("payload", "retry"),)
    assert read_filters("-error_type:Late").wrong == ["error_type is not excluded; it was left out"]
    assert read_filters('payload:" "').wrong == ["payload takes the text to search for; it was left out"]


def test_a_text_is_looked_for_in_payloads_beside_the_other_filters() -> None:
    read = read_filters('user:a refund "at once"')
    assert read.in_payloads == 'user:a payload:"refund at once"'
    assert read_filters(read.in_payloads).text == ""


def test_attributes_are_filters_by_their_name_and_any_key_behind_attr() -> None:
    read = read_filters('environment:prod tag:a -tag:"b c" attr.shop.Tier-2:gold attr.x:"y z"')
    assert read.asked == {
        "attributes": (
            ("environment", "prod"), ("tag", "a"), ("attr.shop.Tier-2", "gold"), ("attr.x", "y z"),
        ),
        "one_span": True,
        "without": (("tag", "b c"),),
    }  # fmt: skip
    assert (read.wrong, read.text) == ([], "")
    assert str(read) == 'environment:prod tag:a -tag:"b c" attr.shop.Tier-2:gold attr.x:"y z"'
    many = read_filters(" ".join(f"tag:t{number}" for number in range(12)))
    assert len(many.asked["attributes"]) == 10
    assert many.wrong == ["at most 10 attributes are asked for; the others were left out"]


def test_a_minus_excludes_and_two_of_a_name_are_told() -> None:
    read = read_filters('-status:error -model:gpt-4o -session:"a b" -word -https://x user:a user:b')
    assert read.asked == {
        "status": "ok", "without": (("model", "gpt-4o"), ("session_id", "a b")), "user_id": "b",
    }  # fmt: skip
    assert read.text == "-word -https://x"
    assert read.wrong == ["user appears twice; the last one counts"]
    assert read_filters("-latency:>5s").wrong == [
        "latency is not excluded; turn its sign round; it was left out"
    ]
    many = read_filters(" ".join(f"-user:u{number}" for number in range(12)))
    assert (len(many.asked["without"]), len(many.wrong)) == (10, 1)


def test_a_value_is_added_or_excluded_never_both() -> None:
    read = read_filters("-model:a model:b")
    assert read.with_("model", "a") == "model:a"
    assert read.with_("model", "c") == "-model:a model:c"
    assert read.excluding("model", "b") == "-model:a -model:b"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["site", "model", "session", "user"]),
            st.text(min_size=1, max_size=30),
            st.booleans(),
        )
    ),
    st.text(max_size=30),
)
def test_what_a_bar_says_reads_as_the_same_bar(values: list[tuple[str, str, bool]], text: str) -> None:
    tokens = [Token(name, value, excluded) for name, value, excluded in values]
    text = " ".join(text.split())
    bar = str(Filters(tokens, text, {}, []))
    read = read_filters(bar)
    assert list(read.tokens) == tokens
    assert read.text == text
    assert str(read) == bar


def test_a_chip_is_taken_out_and_a_value_takes_the_place_of_another() -> None:
    read = read_filters("status:error site:a refund")
    assert read.without(read.tokens[0]) == "site:a refund"
    assert read.with_("site", "b c") == 'status:error site:"b c" refund'


def test_every_example_of_the_bar_can_be_read() -> None:
    for field in FIELDS.values():
        assert read_filters(f"{field.name}:{quoted(field.example)}").wrong == []


def test_a_relative_range_is_kept_as_two_instants() -> None:
    day = TimeRange.of({}, NOW)
    assert day.parameters == {}
    assert day.said(UTC) == "in the last 24 hours"
    assert day.instants == {"from": "2026-11-20T12:00:00.000000Z", "to": "2026-11-21T12:00:00.000000Z"}
    kept = TimeRange.of(day.instants, NOW + timedelta(days=3))
    assert (kept.low, kept.high) == (day.low, NOW)
    assert kept.said(UTC) == "from 20 Nov 12:00 to 21 Nov 12:00"


@pytest.mark.parametrize(
    "query",
    [{"range": "5y"}, {"from": "yesterday"}, {"from": "2026-11-22T00:00Z", "to": "2026-11-21T00:00Z"}],
)
def test_a_range_that_cannot_be_read_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(Refused):
        TimeRange.of(query, NOW)


@pytest.mark.parametrize("length", [length for length, _ in PRESETS.values() if length])
def test_bars_are_round_and_not_too_many(length: timedelta) -> None:
    assert 12 <= length / bar_width(NOW - length, NOW) <= 72


def test_marks_are_asked_for_all_at_once_and_left_out_each() -> None:
    filters = read_filters(
        "mark:same_call_again mark:args_break_schema mark:same_call_again -mark:claim_without_call"
    )
    assert filters.wrong == []
    asked = filters.between(None, None)
    assert asked.marks == ("same_call_again", "args_break_schema")
    assert asked.without_marks == ("claim_without_call",)
    assert (asked.by_index, asked.by_value, asked.one_span) == (True, False, False)
    unknown = read_filters("mark:loops")
    assert unknown.asked == {}
    assert unknown.wrong[0].startswith("mark is one of args_break_schema, ")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("usr:u-17", "there is no filter “usr”, so it is searched for as text. The nearest one is user"),
        (
            "call_site:x",
            "there is no filter “call_site”, so it is searched for as text. The nearest one is site",
        ),
        (
            "zebra:1",
            "there is no filter “zebra”, so it is searched for as text."
            " For an attribute of your own, write attr.zebra:…",
        ),
    ],
)
def test_an_unknown_filter_is_searched_for_as_text_and_says_so(typed: str, said: str) -> None:
    filters = read_filters(f"{typed} {typed} status:error")
    assert filters.unknown == [said]
    assert (filters.text, filters.wrong) == (f"{typed} {typed}", [])


@pytest.mark.parametrize("typed", ["https://example.org", '"usr:u-17"', "refund", "attr.zebra:1", "at 12:30"])
def test_what_is_no_filter_by_its_looks_is_a_text_without_a_word(typed: str) -> None:
    assert read_filters(typed).unknown == []


def test_explore_says_which_filters_narrow_no_count() -> None:
    def unknown(dataset: str) -> list[str]:
        asked = {"q": "modl:x zebra:1 attr.zebra:1 refund", "dataset": dataset}
        return Explored.of(asked, NOW, "/base", []).unknown

    modl, zebra = unknown("spans")
    assert modl == (
        "there is no filter “modl”, so counts and charts are not narrowed by it. The nearest one is model_id"
    )
    assert zebra.endswith("narrowed by it. For an attribute of your own, write attr.zebra:…")
