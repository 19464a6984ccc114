"""What of a span becomes a field: by convention in every dialect's spelling, and by promotion."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.otlp.reading import envelope, walk
from svc.domain.attributes.conventions import CONVENTION_FIELDS, CONVENTIONS, METADATA
from svc.domain.attributes.reading import (
    MOST_OF_ONE,
    MOST_TOGETHER,
    AttributeReader,
    Pairs,
    may_say,
    says,
    word_of,
)
from svc.domain.intake.mapping import map_span
from svc.domain.spans.values import NAME_CHARS
from tests.domain import BOOK, wire
from tests.wire import request
from tests.wire import span as made


def fields(
    attributes: dict[str, Any] | None = None,
    resource: dict[str, Any] | None = None,
    reader: AttributeReader | None = None,
    project_id: int = 1,
) -> dict[str, list[str]]:
    span = wire(attributes, resource=resource)
    pairs = (reader or AttributeReader()).pairs(project_id, span, map_span(span, BOOK))
    return by_field(pairs)


def by_field(pairs: Pairs) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for field, value in zip(pairs[::2], pairs[1::2], strict=True):
        values.setdefault(field, []).append(value)
    return values


@pytest.mark.parametrize(
    ("field", "key"), [(convention.name, key) for convention in CONVENTIONS for key in convention.keys]
)
def test_each_spelling_of_a_convention_is_its_field(field: str, key: str) -> None:
    assert fields({key: "x"})[field] == ["x"]
    assert fields(resource={key: "x"})[field] == ["x"]


def test_no_spelling_stands_for_two_fields() -> None:
    keys = [key for convention in CONVENTIONS for key in convention.keys]
    assert len(keys) == len(set(keys))


def test_a_span_without_any_has_those_of_its_resource() -> None:
    resource = {"service.name": "shop", "deployment.environment.name": "prod", "service.version": "2.1"}
    assert fields(resource=resource) == {"environment": ["prod"], "release": ["2.1"], "service": ["shop"]}
    assert fields({"odd": 1}) == {}


def test_a_spans_own_word_counts_before_its_resources_and_the_first_spelling_before_later_ones() -> None:
    resource = {"deployment.environment.name": "prod"}
    assert fields({"metadata.env": "canary"}, resource)["environment"] == ["canary"]
    own = {"env": "low", "langfuse.environment": "high"}
    assert fields(own, resource)["environment"] == ["high"]


@pytest.mark.parametrize("tags", [["a", "b"], '["a", "b"]', "a, b", ["a", "b", "a", None, {"x": 1}]])
def test_tags_are_several_values_however_they_are_written(tags: Any) -> None:
    assert fields({"tag.tags": tags})["tag"] == ["a", "b"]


def test_a_tool_is_the_one_that_the_span_calls_in_any_dialect() -> None:
    for call in (
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"},
        {"openinference.span.kind": "TOOL", "tool.name": "search"},
    ):
        assert fields(call)["tool"] == ["search"]
    asks = {"gen_ai.operation.name": "chat", "gen_ai.tool.name": "search"}
    assert "tool" not in fields(asks)


def own_names(*keys: str) -> dict[str, str]:
    """Promoted keys, each called as it is."""
    return {key: f"attr.{key}" for key in keys}


def test_the_instance_of_a_service_is_no_service_of_its_own() -> None:
    for name, service in (("shop-7d9f8b6c5d-x2x4z", ["shop"]), ("shop", ["shop"])):
        assert fields({}, resource={"service.name": name})["service"] == service
    assert "service" not in fields({}, resource={"service.name": "4f1c2ab93d0e"})


def test_a_key_counts_under_what_people_call_it_and_behind_the_spellings_of_a_convention() -> None:
    reader = AttributeReader()
    reader.adopt({1: {"shop.tier": "attr.tier", "acme.account": "tenant"}})
    assert fields({"shop.tier": "gold", "acme.account": "a"}, reader=reader) == {
        "attr.tier": ["gold"], "tenant": ["a"],
    }  # fmt: skip
    assert fields({"tenant.id": "b", "acme.account": "a"}, reader=reader) == {"tenant": ["b"]}


def test_metadata_of_any_client_is_one_key_once_it_is_promoted() -> None:
    reader = AttributeReader()
    reader.adopt({1: own_names("metadata.plan", "shop.tier")})
    for key in (prefix + "plan" for prefix in METADATA):
        assert fields({key: "gold"}, reader=reader) == {"attr.metadata.plan": ["gold"]}
    whole = {"metadata": json.dumps({"plan": "gold", "tenant_id": "acme", "deep": {"a": 1}})}
    assert fields(whole, reader=reader) == {"attr.metadata.plan": ["gold"], "tenant": ["acme"]}
    assert fields({"shop.tier": True, "shop.other": "x"}, reader=reader) == {"attr.shop.tier": ["true"]}
    # Another project has promoted nothing.
    assert fields({"shop.tier": "a"}, reader=reader, project_id=2) == {}


def test_what_is_promoted_counts_for_spans_of_a_resource_that_came_before() -> None:
    reader = AttributeReader()
    span = wire({"shop.tier": "a"}, resource={"service.name": "shop", "shop.zone": "b"})
    row = map_span(span, BOOK)
    assert reader.pairs(1, span, row) == ("service", "shop")
    reader.adopt({1: own_names("shop.tier", "shop.zone")})
    assert by_field(reader.pairs(1, span, row)) == {
        "service": ["shop"], "attr.shop.tier": ["a"], "attr.shop.zone": ["b"],
    }  # fmt: skip


def test_values_are_cut_and_so_many_of_a_span_at_most() -> None:
    assert fields({"env": "x" * 1000})["environment"] == ["x" * NAME_CHARS]
    assert len(fields({"tag.tags": [f"t{n}" for n in range(100)]})["tag"]) == MOST_OF_ONE
    reader = AttributeReader()
    names = [f"k{n}" for n in range(64)]
    reader.adopt({1: own_names(*names)})
    pairs = fields(dict.fromkeys(names, "x"), reader=reader)
    assert sum(map(len, pairs.values())) == MOST_TOGETHER


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(["metadata", *(key for convention in CONVENTIONS for key in convention.keys)])


@given(st.dictionaries(keys, anything, max_size=6))
def test_whatever_is_sent_gives_texts_that_can_be_stored_and_the_same_each_time(
    attributes: dict[str, Any],
) -> None:
    values = fields(attributes)
    assert values == fields(attributes)
    for field, texts in values.items():
        assert field in CONVENTION_FIELDS
        assert len(set(texts)) == len(texts)
        for text in texts:
            assert text
            assert "\x00" not in text
            text.encode()


def test_values_that_are_equal_to_python_are_told_apart() -> None:
    reader = AttributeReader()
    for value, text in ((True, "true"), (1, "1"), ("1", "1"), ("True", "True"), (False, "false"), (0, "0")):
        assert fields({"env": value}, reader=reader) == {"environment": [text]}


def test_what_a_reader_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc.domain.attributes.reading._REMEMBERED_BOUND", 4)
    reader = AttributeReader()
    for number in range(20):
        assert fields({"env": f"e{number}"}, reader=reader) == {"environment": [f"e{number}"]}
        assert len(reader._remembered) <= 4
    long = {"tag.tags": ["x" * 100] * 50}
    assert fields(long, reader=reader) == {"tag": ["x" * 100]}
    assert all("xxx" not in part for said in reader._remembered for part in said if type(part) is str)


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda convention: convention.name)
def test_one_convention_alone_is_read_as_among_all(convention: Any) -> None:
    for key in convention.keys:
        for attributes, resource in (({key: "a"}, {}), ({}, {key: "a"}), ({key: "a"}, {key: "b"})):
            assert word_of(convention.name, wire(attributes, resource=resource)) == "a"
    assert word_of(convention.name, wire({})) is None


_KEYS = st.sampled_from(["plan", "a.b", "grün", 'with \\ and "', "tab\t", "\ufffd", "order.id", "日本"])


@given(
    key=_KEYS,
    member=_KEYS,
    where=st.sampled_from(["attributes", "resource"]),
    prefix=st.sampled_from(["", *METADATA]),
    written=st.sampled_from(["attribute", "object", "escaped", "all escaped"]),
)
def test_what_a_span_says_of_an_attribute_it_may_say_before_it_is_opened(
    key: str, member: str, where: str, prefix: str, written: str
) -> None:
    if written == "attribute":
        said, name = {prefix + key: "x"}, (METADATA[0] if prefix else "") + key
    else:
        text = json.dumps({member: "x"}, ensure_ascii=written != "object")
        if written == "all escaped":
            text = '{"' + "".join(f"\\u{ord(one):04x}" for one in member) + '": "x"}'
        said, name = {"metadata": text}, METADATA[0] + member
    sent = request(
        made("x", said if where == "attributes" else {}), resource={} if where == "attributes" else said
    )
    (span,) = walk(sent)
    assert says(span, name, "x")
    assert may_say(envelope(span), name)
    assert not says(span, "elsewhere", "x")
    assert not may_say(envelope(span), "elsewhere")
