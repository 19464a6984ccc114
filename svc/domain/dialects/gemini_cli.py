"""Gemini CLI, Google's coding agent, beside the GenAI conventions.

Owns: what its spans of tools hold, which write the scheduler's records of a call where messages belong.
Called by the table of dialects. Its operations are in the table of the GenAI conventions. A span of a model
is one by its usage or messages alone: without `GEMINI_TELEMETRY_TRACES_ENABLED` it has neither, and its log
event tells the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.values import decoded, present, text

#: Its own spelling; others write `gen_ai.tool.call.id`.
_CALL_ID: Final = "gen_ai.tool.call_id"
_REQUEST: Final = "gen_ai.input.messages"
_OUTCOME: Final = "gen_ai.output.messages"
#: Every value is cut at ten thousand characters, but an outcome begins with its status.
_BEGINS_FAILED: Final = ('{"status":"error"', '{"status":"cancelled"')


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """Arguments, result and failure of a tool; the span's own status is OK whatever came of the call."""
    if attributes.get("gen_ai.operation.name") != "tool_call":
        return
    request, outcome = attributes.get(_REQUEST), attributes.get(_OUTCOME)
    if type(record := decoded(request)) is dict:
        yield "tool_arguments", present(record.get("args"))
    if type(record := decoded(outcome)) is dict:
        yield from _outcome(record)
    elif type(outcome) is str:
        yield "tool_result", outcome
        if outcome.startswith(_BEGINS_FAILED):
            yield "failed", True


def _outcome(outcome: Mapping[str, Any]) -> Iterable[tuple[Field, Any]]:
    response = outcome.get("response")
    response = response if type(response) is dict else {}
    result = _result(response.get("responseParts"))
    yield "tool_result", present(result)
    if (status := outcome.get("status")) in ("error", "cancelled"):
        yield "failed", True
        yield "error_type", text(response.get("errorType")) or status
        if type(result) is dict:
            yield "error_message", text(result.get("error"))


def _result(parts: Any) -> Any:
    """What the model is given: text alone where it is nothing else."""
    for part in parts if type(parts) is list else ():
        if type(part) is dict and type(answer := part.get("functionResponse")) is dict:
            response = answer.get("response")
            return (
                response["output"] if type(response) is dict and response.keys() == {"output"} else response
            )
    return None


DIALECT: Final = Dialect(
    name="gemini_cli",
    title="Gemini CLI",
    keys={"tool_call_id": (_CALL_ID,)},
    derive=derive,
    derives=("failed", "error_type", "error_message", "tool_arguments", "tool_result"),
    beside_genai=True,
)
