"""What a model answered, out of the payload of its span: text, calls of tools, why it stopped.

Owns: `Answer`, `AskedCall` and `canonical`, the text by which arguments are compared. `settled_trace` asks
for every span of a model. Pure; never raises over what a client sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from protocol.otlp.reading import WireSpan
from svc.domain.dialects import Reading
from svc.domain.spans.messages import parts, text_of, unwrapped
from svc.domain.spans.values import decoded, text


# A struct: one for each call that a model asks for.
class AskedCall(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A tool call inside an answer: the tool's name, its arguments as canonical text, and the id of the call;
    None for what is unknown.
    """

    name: str
    arguments: str | None
    call_id: str | None = None


def canonical(value: Any) -> str | None:
    """A value as text in which equal values are equal: JSON with sorted keys, other text stripped."""
    if value is None:
        return None
    opened = decoded(value)
    try:
        if opened is None:
            content = text_of(value)
            return None if content is None else content.strip()
        return msgspec.json.encode(opened, order="sorted").decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


class _PlainText(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True, gc=False):
    content: str


class _PlainCall(msgspec.Struct, tag_field="type", tag="tool_call", forbid_unknown_fields=True, gc=False):
    name: str
    id: str | None = None
    arguments: Any = None


class _PlainMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An answer's message without anything that would have to be interpreted."""

    role: str
    parts: list[_PlainText | _PlainCall]
    finish_reason: str | None = None


_plain_answer: Final = msgspec.json.Decoder(list[_PlainMessage]).decode
_PLAIN: Final = ('[{"role":"assistant","parts":[{', '[{"role": "assistant", "parts": [{')


class Answer:
    """An llm span's output, taken apart."""

    def __init__(self, span: WireSpan, reading: Reading) -> None:
        self.said: str | None = None
        self.media = False
        self.calls: list[AskedCall] = []
        self.reasons: list[str] = []
        if (answer := reading.answer(span)) is not None and self._plain(answer):
            self.captured = True
            return
        messages = reading.output_messages(span)
        if not messages:
            value = reading.found.get("output_value")
            self.captured = value is not None
            self.said = text_of(value)
            return
        self.captured = True
        texts: list[str] = []
        try:
            for message in messages:
                self._hear(unwrapped(message), texts)
        except RecursionError:
            # Deeper than anybody could mean.
            self.media, self.calls, self.reasons, texts = False, [], [], []
        self.said = "\n".join(texts) or None

    def _plain(self, answer: str) -> bool:
        """Hear an answer as nearly all who speak GenAI write it; False for any other, of which nothing is
        heard then. To open it as what it is takes half as long as to ask what it may be.
        """
        if not answer.startswith(_PLAIN):
            return False
        try:
            messages = _plain_answer(answer)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return False
        if not all([message.parts for message in messages]):
            return False
        texts: list[str] = []
        for message in messages:
            for part in message.parts:
                if isinstance(part, _PlainCall):
                    arguments = None if part.arguments == "" else canonical(part.arguments)
                    self.calls.append(AskedCall(text(part.name) or "unknown", arguments, text(part.id)))
                elif part.content:
                    texts.append(part.content)
            if (reason := text(message.finish_reason)) is not None:
                self.reasons.append(reason)
        self.said = "\n".join(texts) or None
        return True

    def _hear(self, message: Mapping[str, Any], texts: list[str]) -> None:
        for part in parts(message):
            kind = part["type"]
            if kind == "text":
                texts.append(part["text"])
            elif kind == "tool_call":
                tool_name = text(part["name"]) or "unknown"
                self.calls.append(AskedCall(tool_name, canonical(part["arguments"]), text(part["id"])))
            elif kind == "media":
                self.media = True
        if (reason := text(message.get("finish_reason"))) is not None:
            self.reasons.append(reason)
