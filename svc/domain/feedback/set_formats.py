"""A set in the formats that evaluation tools read. Pure; called by the exports of pages and REST.

A format turns each line into one or more values, which are encoded one by one: nothing here encodes a whole
set at once. Shapes: the samples of OpenAI evals, the body of Langfuse's `POST /api/public/dataset-items` and
of Phoenix's `POST /v1/datasets/upload`, as documented in November 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import msgspec

from protocol.rest.query import jsonable
from protocol.rest.sets import SetFormatName

#: Where messages and their parts have their words.
_WORDS: Final = ("content", "text", "parts")

#: One entry: `id`, `input`, `output`, `note`, `metadata`, `feedback`.
Line = Mapping[str, Any]


@attrs.frozen
class SetFormat:
    """A format: its words for people, and the values of one line."""

    name: SetFormatName
    label: str
    suffix: str
    values: Callable[[str, Line], tuple[Any, ...]]
    #: What the values of a line are called where the whole set is one document, an array of each.
    columns: tuple[str, ...] = ()

    def encoded(self, set_name: str, line: Line, index: int) -> bytes:
        """One of the values of a line as JSON."""
        return _encode(self.values(set_name, line)[index])


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=jsonable)


def _whole(_set_name: str, line: Line) -> tuple[Any, ...]:
    return (line,)


def _openai(_set_name: str, line: Line) -> tuple[Any, ...]:
    return ({"input": _messages(line["input"]), "ideal": _text(line["output"])},)


def _langfuse(set_name: str, line: Line) -> tuple[Any, ...]:
    metadata = line["metadata"]
    item = {
        "datasetName": set_name,
        # Langfuse's ids are unique within a project of it, and an item that comes again takes its place.
        "id": f"{metadata['set_id']}-{line['id']}",
        "input": line["input"],
        "expectedOutput": line["output"],
        "metadata": {**metadata, "note": line["note"], "feedback": line["feedback"]},
        "sourceTraceId": metadata["trace_id"],
        "sourceObservationId": metadata["span_id"],
        "status": "ACTIVE",
    }
    return (item,)


def _phoenix(_set_name: str, line: Line) -> tuple[Any, ...]:
    metadata = {**line["metadata"], "note": line["note"], "feedback": line["feedback"]}
    return _object(line["input"], "input"), _object(line["output"], "output"), metadata, metadata["span_id"]


def _messages(value: Any) -> list[dict[str, str]]:
    """A conversation as OpenAI has it; what is none becomes one message of the user."""
    messages = value.get("messages") if isinstance(value, dict) else value
    if isinstance(messages, list) and messages and all(_is_message(message) for message in messages):
        return [
            {"role": str(message["role"]), "content": _text(message.get("content") or message.get("parts"))}
            for message in messages
        ]
    return [{"role": "user", "content": _text(value)}]


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def _text(value: Any) -> str:
    """What a value says, as a text: of messages and their parts what they say, else JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for name in _WORDS:
            if isinstance(value.get(name), str | list):
                return _text(value[name])
    if isinstance(value, list):
        value = [part for part in value if not _is_thought(part)]
        if all(map(_speaks, value)):
            return "\n".join(map(_text, value))
    return _encode(value).decode()


def _speaks(value: Any) -> bool:
    if isinstance(value, dict):
        value = next((value[name] for name in _WORDS if isinstance(value.get(name), str | list)), None)
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and all(map(_speaks, value)))


def _is_thought(value: Any) -> bool:
    """What a model thought is no part of its answer."""
    return isinstance(value, dict) and value.get("type") in ("reasoning", "thinking")


def _object(value: Any, name: str) -> dict[str, Any]:
    return value if isinstance(value, dict) else {name: value}


FORMATS: Final[dict[SetFormatName, SetFormat]] = {
    made.name: made
    for made in (
        SetFormat("lines", "JSON lines, with everything", "jsonl", _whole),
        SetFormat("openai_evals", "OpenAI evals", "jsonl", _openai),
        SetFormat("langfuse", "Langfuse dataset items", "jsonl", _langfuse),
        SetFormat(
            "phoenix", "Phoenix dataset", "json", _phoenix, ("inputs", "outputs", "metadata", "span_ids")
        ),
    )
}
