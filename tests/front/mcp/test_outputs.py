"""Output schemas: what they promise, and that nothing is promised to the letter or to runs."""

from __future__ import annotations

import json
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest

from protocol.agents import RUN_TOOLS
from svc.front.mcp.argument_types import SpanColumn, TraceColumn
from svc.front.mcp.outputs import ANSWERS, SpanAnswer, TraceRow, output_schema
from svc.front.mcp.redaction import HIDDEN
from svc.front.mcp.tools import TOOLS, catalogue


def listed(raw: Any) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in json.loads(bytes(raw))["tools"]}


def below(schema: Any) -> list[dict[str, Any]]:
    """A schema and all that are inside it."""
    if not isinstance(schema, dict):
        return [each for item in schema for each in below(item)] if isinstance(schema, list) else []
    inner = [
        each
        for keyword, value in schema.items()
        for each in below(list(value.values()) if keyword == "properties" else value)
    ]
    return [schema, *inner]


def test_every_tool_has_a_title_and_a_schema_of_its_answer() -> None:
    shown = listed(catalogue(extensions=True).listed)
    assert shown.keys() == ANSWERS.keys() == {tool.name for tool in TOOLS}
    titles = [tool["title"] for tool in shown.values()]
    assert len(set(titles)) == len(titles)
    for name, tool in shown.items():
        assert tool["outputSchema"] == output_schema(name)
        assert tool["outputSchema"]["type"] == "object"


def test_to_the_letter_and_for_runs_a_tool_is_what_the_specification_says() -> None:
    keys = {"name", "description", "inputSchema", "annotations"}
    specified, of_runs = catalogue(extensions=False), catalogue(extensions=True).listed_to_runs
    for shown in (listed(specified.listed), listed(of_runs)):
        assert all(tool.keys() == keys for tool in shown.values())
    assert set(listed(of_runs)) == set(RUN_TOOLS)


def test_columns_that_can_be_chosen_are_those_of_the_rows() -> None:
    for column, row, apart in (
        (TraceColumn, TraceRow, {"trace_id"}),
        (SpanColumn, SpanAnswer, {"trace_id", "span_id", "payload_truncated"}),
    ):
        names = {field.name for field in msgspec.structs.fields(row)}
        assert set(get_args(column)) - {"payload"} == names - apart


@pytest.mark.parametrize("name", ANSWERS)
def test_a_schema_is_valid_open_whole_and_hides_rulings(name: str) -> None:
    schema = output_schema(name)
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    for inner in below(schema):
        # A further key or value of another release is no reason to drop an answer.
        assert inner.get("additionalProperties") is not False
        assert not inner.keys() & {"enum", "const", "$ref", "$defs", "description", "format"}
        properties = inner.get("properties", {})
        assert set(inner.get("required", [])) <= properties.keys()
        assert not HIDDEN & properties.keys()


def test_a_schema_notices_what_does_not_fit() -> None:
    fits = jsonschema_rs.validator_for(output_schema("query_count"))
    assert fits.is_valid({"count": 3})
    for answer in ({}, {"count": "3"}, {"count": 3, "errors": None}):
        assert not fits.is_valid(answer)
    # A property may be called like a keyword.
    assert "title" in output_schema("list_cases")["properties"]["cases"]["items"]["required"]
