"""What spans said, as parts that a page can show: who said it, in which form, how long it is.

Pure. Owns what is shown inline and what waits until somebody asks: a part is cut after `PART_CHARS`, and when
a page has shown `INLINE_CHARS` what follows is a slot with its size and a beginning. `at` names a part within
its span's payload, so that the whole of it can be had.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal

import attrs
import msgspec

from svc.web.messages.message_media import Media, Shown, media_title

#: Text that a page shows by itself, of one part and of all together.
PART_CHARS: Final = 8_000
INLINE_CHARS: Final = 256 * 1024
_SLOT_CHARS: Final = 160
#: A picture whose address is no longer than this is in the page: three quarters of it are the file.
PICTURE_CHARS: Final = 32_768
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")

Form = Literal["text", "reasoning", "call", "result", "json", "media", "unknown"]


@attrs.define
class Part:
    """One piece of a message. `text` is what is shown of it, `size` how many bytes all of it has."""

    form: Form
    text: str
    size: int
    at: str
    title: str = ""
    cut: bool = False
    failed: bool = False
    call_id: str | None = None
    #: The address of a picture that is in the page itself.
    picture: str = ""
    #: How the file that it holds is shown.
    shown: Shown | None = None
    #: What answered a call, when it is among the same messages.
    answer: Part | None = None


@attrs.define
class Said:
    """One message: who, and its parts."""

    role: str
    parts: list[Part]
    digest: bytes
    name: str = ""

    @property
    def size(self) -> int:
        """Bytes of all its parts."""
        return sum(part.size + (part.answer.size if part.answer else 0) for part in self.parts)


@attrs.define
class Room:
    """How much text a page may still show by itself."""

    chars: int = INLINE_CHARS

    def shown(self, text: str) -> tuple[str, bool]:
        """As much of a text as is shown, and whether that is less than all."""
        most = PART_CHARS if self.chars > 0 else _SLOT_CHARS
        self.chars -= min(len(text), most)
        return (text, False) if len(text) <= most else (text[:most], True)


def pretty(value: Any) -> str:
    """A value as text: a text as it is, anything else as indented JSON."""
    if type(value) is str:
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def messages(value: Any, side: str, room: Room) -> list[Said]:
    """The messages of an input or an output; what is no conversation is one message without a role."""
    if value is None:
        return []
    if not _is_conversation(value):
        form: Form = "text" if type(value) is str else "json"
        return [Said("", [_part(form, pretty(value), side, room)], _digest(value))]
    conversation = [
        Said(
            str(message.get("role") or ""),
            [_part_of(part, f"{side}.{i}.{j}", room) for j, part in enumerate(message.get("parts") or [])],
            _digest(_without_ids(message)),
            str(message.get("name") or ""),
        )
        for i, message in enumerate(value)
    ]
    return paired(conversation)


def _is_conversation(value: Any) -> bool:
    return (
        type(value) is list
        and bool(value)
        and all(type(message) is dict and type(message.get("parts")) is list for message in value)
    )


def _digest(value: Any) -> bytes:
    return blake2b(msgspec.json.encode(value), digest_size=12).digest()


def _without_ids(message: Mapping[str, Any]) -> list[Any]:
    parts = [
        {name: field for name, field in part.items() if name != "id"} if type(part) is dict else part
        for part in message.get("parts") or []
    ]
    return [message.get("role"), parts]


def _part(form: Form, text: str, at: str, room: Room, **more: Any) -> Part:
    visible_text, cut = room.shown(text)
    return Part(form, visible_text, len(text.encode("utf-8", "replace")), at, cut=cut, **more)


def _part_of(part: Any, at: str, room: Room) -> Part:
    if type(part) is not dict:
        return _part("unknown", pretty(part), at, room)
    match part.get("type"):
        case "text" | "reasoning" as form:
            return _part(form, pretty(part.get("text") or ""), at, room)
        case "tool_call":
            name, call_id = str(part.get("name") or "a tool"), part.get("id")
            return _part("call", pretty(part.get("arguments")), at, room, title=name, call_id=call_id)
        case "tool_result":
            name, failed = str(part.get("name") or ""), bool(part.get("is_error"))
            text = pretty(part.get("result"))
            return _part("result", text, at, room, title=name, failed=failed, call_id=part.get("id"))
        case "media":
            return _media(part, at, room)
    return _part("unknown", pretty(part), at, room, title=str(part.get("type") or ""))


def _media(part: Mapping[str, Any], at: str, room: Room) -> Part:
    """A picture, a sound or a file is named with its size; a small picture is in the page itself."""
    if (media := Media.of(part)) is not None:
        picture = _picture(media, room)
        return Part("media", "", media.size, at, title=media.title, picture=picture, shown=media.shown)
    if type(part.get("uri")) is str:
        return _part("media", part["uri"], at, room, title=media_title(part))
    return _part("unknown", pretty(part.get("value")), at, room, title=media_title(part))


def _picture(media: Media, room: Room) -> str:
    if media.shown != "picture" or len(media.data) > PICTURE_CHARS:
        return ""
    address = f"data:{media.mime_type};base64,{media.data}"
    if len(address) > min(PICTURE_CHARS, room.chars) or not _BASE64.fullmatch(media.data):
        return ""
    room.chars -= len(address)
    return address


def paired(messages: Sequence[Said]) -> list[Said]:
    """The messages with each result below the call that it answers."""
    calls = {
        part.call_id: part
        for message in messages
        for part in message.parts
        if part.form == "call" and part.call_id
    }
    shown_messages = []
    for message in messages:
        for part in list(message.parts):
            call = calls.get(part.call_id or "") if part.form == "result" else None
            if call is not None and call.answer is None:
                call.answer = part
                message.parts.remove(part)
        if message.parts:
            shown_messages.append(message)
    return shown_messages


_SIDES: Final = frozenset({"input", "output", "attributes", "provided_usage", "events", "links"})


def part_at(payload: Mapping[str, Any], at: str) -> Any:
    """What a part is in full, by its `at`. Raises `LookupError` when there is none."""
    part = _place(payload, at)
    if type(part) is not dict or at.count(".") != 2:
        return part
    return next((part[key] for key in ("text", "arguments", "result", "data", "uri") if key in part), part)


def media_at(payload: Mapping[str, Any], at: str) -> Media:
    """The file that a part holds. Raises `LookupError` when there is none."""
    part = _place(payload, at)
    if type(part) is dict and part.get("type") == "media" and (media := Media.of(part)) is not None:
        return media
    raise LookupError(at)


def _place(payload: Mapping[str, Any], at: str) -> Any:
    side, *places = at.split(".")
    if side not in _SIDES:
        raise LookupError(at)
    value: Any = payload.get(side)
    if not places:
        return value
    if len(places) != 2 or not _is_conversation(value):
        raise LookupError(at)
    return value[int(places[0])]["parts"][int(places[1])]


#: What the row of a span leaves out when there is nothing to say.
UNSAID: Final = {"error_message": None, "usage_repeats": None, "price_book": None, "payload_truncated": None}


@attrs.define
class Step:
    """One span of a conversation: what it was newly given, what it answered."""

    span: dict[str, Any]
    earlier: int
    asked: list[Said]
    answered: list[Said]
    #: Spans of the same name that said nothing either, one after the other.
    times: int = 1


#: What a span of these kinds calls is shown under the model call that asked for it.
_CALLED: Final = frozenset({"tool", "mcp", "retrieval", "reranker"})


def steps(spans: Sequence[dict[str, Any]], previous_span: dict[str, Any] | None, room: Room) -> list[Step]:
    """The spans as a conversation: messages that were said before are counted, not said again."""
    known_digests: set[bytes] = set()
    if previous_span is not None:
        known_digests.update(message.digest for message in _both_sides(previous_span, Room(0)))
    models = any(span["kind"] in ("llm", "reasoning") for span in spans)
    # What is told by a span of its own need not be told by who called it.
    call_ids = {_call_id(span) for span in spans if span["kind"] in _CALLED} - {None}
    talk_steps: list[Step] = []
    for span in spans:
        inputs = messages(span.get("input"), "input", Room(0))
        new = {message.digest for message in inputs} - known_digests
        known_digests |= new
        fresh = [message for message in messages(span.get("input"), "input", room) if message.digest in new]
        fresh = [message for message in fresh if not _is_repeated(message, call_ids)]
        if span["kind"] == "agent" and models:
            answered = []
        else:
            answered = messages(span.get("output"), "output", room)
            known_digests.update(message.digest for message in answered)
        for part in (part for message in answered for part in message.parts):
            if part.form == "call" and part.call_id in call_ids:
                part.text = ""
        step = Step({**UNSAID, **span}, len(inputs) - len(fresh), fresh, answered)
        if (
            talk_steps
            and _is_silent(step)
            and _is_silent(talk_steps[-1])
            and span["name"] == talk_steps[-1].span["name"]
        ):
            talk_steps[-1].times += 1
        else:
            talk_steps.append(step)
    return talk_steps


def _both_sides(span: Mapping[str, Any], room: Room) -> Iterable[Said]:
    yield from messages(span.get("input"), "input", room)
    yield from messages(span.get("output"), "output", room)


def _call_id(span: Mapping[str, Any]) -> str | None:
    tool = span.get("tool")
    return tool.get("call_id") if type(tool) is dict else None


def _is_repeated(message: Said, call_ids: set[str | None]) -> bool:
    return all(part.form == "result" and part.call_id in call_ids for part in message.parts)


def _is_silent(step: Step) -> bool:
    return not step.asked and not step.answered and step.span["status"] == "ok"
