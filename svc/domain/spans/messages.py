"""Reading the messages of a model call, whatever style they are written in, into one normal form.

Owns: `conversation` and `messages_in` (finding the messages in a value), `parts` and `normal` (reading them),
`last_user_text`, `last_text` and `answer` (what the row needs). The dialects say where messages lie; the
mapper reads ends of them on the hot path; the read side wants them whole. Never raises over what was sent.

The normal form of a message is `{role, parts, name?, finish_reason?}`; a part is one of

- `{type: "text", text}`
- `{type: "reasoning", text}`
- `{type: "tool_call", id, name, arguments}`
- `{type: "tool_result", id, name, result}`, with `is_error: true` where the part says so
- `{type: "media", media, mime_type, uri, data}`, or with `value` where the part is of no known type

with null, in media and reasoning with nothing, for what was not said. Styles read: OpenTelemetry GenAI parts;
OpenAI chat messages and Responses items; Anthropic and Bedrock content blocks; Gemini and Genkit
parts; LangChain messages, plain or serialised; Vercel parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from protocol.text import clean
from svc.domain.spans.message_words import (
    KEPT_UNDER,
    LOOSE,
    MEDIA,
    REASONING,
    ROLES,
    TEXT,
    TOOL_CALL,
    TOOL_RESULT,
    UNNAMED,
)
from svc.domain.spans.tool_results import Failure, failure_in
from svc.domain.spans.values import decoded, text

Message = Mapping[str, Any]
#: A tool call that an answer asks for: its id and its name.
Asked = tuple[str | None, str | None]

#: A preview is this long (contract §3).
PREVIEW_CHARS: Final = 200
#: How deep lists and wrappers are followed to reach messages.
_DEPTH: Final = 4


def conversation(value: Any, depth: int = _DEPTH) -> list[Any] | None:
    """The messages in a decoded value: a list of them, one alone, or what an object keeps under a usual key.

    None when the value holds nothing that has a role.
    """
    if type(value) is list:
        if not value:
            return None
        first = value[0]
        if type(first) is dict:
            return value if _is_message(first) else None
        # LangChain keeps a list of messages for each prompt of a batch.
        return conversation(first, depth - 1) if depth else None
    if type(value) is dict:
        if _is_message(value):
            return [value]
        if depth:
            for key in KEPT_UNDER:
                if (messages := conversation(value.get(key), depth - 1)) is not None:
                    return messages
    return None


def messages_in(value: Any, role: str) -> list[Any] | None:
    """The messages in an attribute: a conversation in any style, else plain text said by `role`."""
    if value is None or value == "":
        return None
    opened = decoded(value)
    messages = conversation(opened)
    # An empty list in JSON is nobody's text.
    if messages is None and type(value) is str and opened != []:
        return [{"role": role, "content": value}]
    return messages


def _is_message(item: dict[str, Any]) -> bool:
    if "role" in item or "parts" in item:
        return True
    if type(item.get("message")) is dict:
        return True
    # A serialised message of LangChain; what a function was called with has `kwargs` too.
    if type(inner := item.get("kwargs")) is dict and "content" in inner:
        return True
    kind = item.get("type")
    if type(kind) is not str:
        return False
    return kind in LOOSE or (("content" in item or "data" in item) and kind.lower() in ROLES)


def unwrapped(message: Any) -> Message:
    """A message out of what wraps it: a choice, a LangChain constructor, or bare text."""
    if type(message) is dict and "role" in message:
        return message
    for _ in range(_DEPTH):
        if type(message) is not dict:
            return {"role": "user", "content": message}
        if type(inner := message.get("message")) is dict and "role" not in message:
            reason = message.get("finish_reason", inner.get("finish_reason"))
            message = {**inner, "finish_reason": reason}
        elif type(inner := message.get("kwargs")) is dict:
            path = message.get("id")
            message = {"type": path[-1] if type(path) is list and path else None, **inner}
        elif type(inner := message.get("data")) is dict and "content" in inner:
            message = {"type": message.get("type"), **inner}
        else:
            break
    opened: Message = message
    return opened


def role_of(message: Message) -> str:
    """Who speaks: `user`, `assistant`, `system`, `tool`, or another word as it came; lower case."""
    role = message.get("role")
    if type(role) is not str or not role:
        role = message.get("type")
        if type(role) is not str:
            return "assistant" if "finish_reason" in message else "user"
        role = LOOSE.get(role, role)
    role = role.lower()
    return ROLES.get(role, role)


def _is_loose(message: Message) -> bool:
    return "role" not in message and type(kind := message.get("type")) is str and kind in LOOSE


def parts(message: Message) -> list[dict[str, Any]]:
    """The parts of an opened message in normal form, tool arguments and results still as they came."""
    if _is_loose(message):
        loose = _part(message)
        return [] if loose is None else [loose]
    content = message.get("parts")
    if content is None:
        content = message.get("content")
    if "tool_call_id" in message and role_of(message) == "tool":
        call_id = message["tool_call_id"]
        entries = [{"type": "tool_result", "id": call_id, "name": message.get("name"), "result": content}]
    else:
        items = content if type(content) is list else (content,)
        entries = [part for item in items if (part := _part(item)) is not None]
    if type(calls := message.get("tool_calls")) is list:
        entries += [_call(call) for call in calls if type(call) is dict]
    elif type(call := message.get("function_call")) is dict:
        entries.append(_call(call))
    return entries


def _part(item: Any) -> dict[str, Any] | None:
    """A part in normal form, or None when it says nothing."""
    if not isinstance(item, dict):
        content = text_of(item)
        return None if content is None else {"type": "text", "text": content}
    kind = item.get("type")
    # The two that nearly every part is come first and cost least.
    if kind == "text" and type(content := item.get("content") or item.get("text")) is str:
        return {"type": "text", "text": content}
    if kind == "tool_call":
        return _call(item)
    if type(kind) is not str:
        # Not named by a type: the first known key is the type, its value the part.
        kind = next((key for key in UNNAMED if key in item), "")
        if type(inner := item.get(kind)) is dict:
            item = inner
        elif kind == "text" and item.get("thought") is True:
            kind = "reasoning"
        kind = kind or ("text" if "content" in item else "")
    kind = kind.lower().replace("-", "_")
    if kind in TEXT:
        content = text_of(_first_value(item, "content", "text", "refusal"))
        return None if content is None else {"type": "text", "text": content}
    if kind in TOOL_CALL:
        return _call(item)
    if kind in TOOL_RESULT:
        result = _first_value(item, "response", "result", "output", "content")
        if type(result) is dict and result.keys() == {"type", "value"}:
            # Vercel says beside a tool's output what type it has.
            result = result["value"]
        failed = {"is_error": True} if item.get("is_error") is True else {}
        return {
            "type": "tool_result",
            "id": _call_id(item),
            "name": _called(item),
            "result": result,
            **failed,
        }
    if kind in REASONING:
        return _compact(type="reasoning", text=_reasoning_of(item))
    if (head := kind.removeprefix("input_").removesuffix("_url")) in MEDIA:
        return _media(head, item)
    return {"type": "media", "media": kind or "unknown", "value": item}


def _reasoning_of(item: dict[str, Any]) -> str | None:
    reasoning = _first_value(item, "content", "text", "thinking", "summary", "reasoning")
    if type(reasoning) is list:
        texts = (part.get("text") for part in reasoning if type(part) is dict)
        return "\n".join(part for part in texts if type(part) is str)
    return reasoning if type(reasoning) is str else None


def _call(item: Message) -> dict[str, Any]:
    if type(function := item.get("function")) is dict:
        item = {**item, **function}
    arguments = _first_value(item, "arguments", "args", "input")
    return {"type": "tool_call", "id": _call_id(item), "name": _called(item), "arguments": arguments}


def _called(item: Message) -> Any:
    return item.get("name") or item.get("toolName")


def _call_id(item: Message) -> Any:
    # The Responses API gives an item an `id` of its own beside the `call_id` its result refers to.
    return (
        item.get("call_id")
        or item.get("tool_call_id")
        or item.get("toolCallId")
        or item.get("tool_use_id")
        or item.get("toolUseId")
        or item.get("ref")
        or item.get("id")
    )


def _media(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    inner = next((item[key] for key in ("image_url", "source", "input_audio", "file") if key in item), item)
    inner = {**item, **(inner if type(inner) is dict else {"uri": inner})}
    modality = item.get("modality")
    return _compact(
        type="media",
        media=modality if type(modality) is str else kind,
        mime_type=_first_value(
            inner, "mime_type", "media_type", "mimeType", "mediaType", "contentType", "format"
        ),
        uri=_first_value(
            inner,
            "uri",
            "url",
            "file_uri",
            "fileUri",
            "file_id",
            "image.image.url",
        ),
        data=_first_value(inner, "data", "content", "bytes", "image", "file_data"),
    )


def _first_value(item: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        value = item.get(key)
        if value is not None and value != "":
            return value
    return None


def _compact(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def normal(messages: list[Any]) -> list[dict[str, Any]]:
    """The messages in normal form; JSON in arguments and results is opened, so both encodings read alike."""
    entries = []
    for raw in messages:
        message = unwrapped(raw)
        pieces = []
        for part in parts(message):
            for key in ("arguments", "result"):
                if (value := decoded(part.get(key))) is not None:
                    part[key] = value
            pieces.append(part)
        # A loose item's name is that of the tool it calls.
        name = None if _is_loose(message) else text(message.get("name"))
        reason = text(message.get("finish_reason"))
        entries.append(_compact(role=role_of(message), name=name, parts=pieces, finish_reason=reason))
    return entries


def _text_in(message: Message) -> str | None:
    texts = [part["text"] for part in parts(message) if part["type"] == "text"]
    return "\n".join(texts) or None


def last_user_text(messages: list[Any]) -> str | None:
    """The text of the last message a user said, else of the last message that says anything."""
    for raw in reversed(messages):
        message = unwrapped(raw)
        if role_of(message) == "user" and (content := _text_in(message)) is not None:
            return content
    return last_text(messages)


def last_text(messages: list[Any]) -> str | None:
    """The text of the last message that says anything, system messages aside."""
    for raw in reversed(messages):
        message = unwrapped(raw)
        if role_of(message) != "system" and (content := _text_in(message)) is not None:
            return content
    return None


def answer(messages: list[Any], limit: int) -> tuple[str | None, list[Asked], dict[str, Failure]]:
    """The last text of an answer, and the id and name of each tool call in it, in order, at most `limit`.

    A tool that the provider runs answers within the same answer: last come the calls that failed, by id.
    """
    reply: str | None = None
    calls: list[Asked] = []
    failures: dict[str, Failure] = {}
    for raw in messages:
        texts = []
        for part in parts(unwrapped(raw)):
            if part["type"] == "text":
                texts.append(part["text"])
            elif part["type"] == "tool_call":
                if len(calls) < limit:
                    calls.append(_asked(part))
            elif part["type"] == "tool_result" and (call_id := text(part["id"])) is not None:
                failure = failure_in(part["result"], failed=part.get("is_error") is True)
                if failure is not None:
                    failures[call_id] = failure
        reply = "\n".join(texts) or reply
    return reply, calls, failures


def _asked(call: Mapping[str, Any]) -> Asked:
    call_id, name = text(call["id"]), text(call["name"])
    # Google's kit and instrumentation number calls without an id within an answer: the next one repeats it.
    if call_id and name and call_id.startswith(f"{name}_") and call_id[len(name) + 1 :].isdigit():
        call_id = None
    return call_id, name


def text_of(value: Any) -> str | None:
    """A value as text: text as it is, anything else as compact JSON; None for nothing."""
    if value is None or value == "":
        return None
    if type(value) is str:
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def preview(content: str | None) -> str | None:
    """The first 200 characters, cleaned; None for nothing."""
    return clean(content[:PREVIEW_CHARS]) if content else None
