"""One settled trace as detectors read it: the rows of its spans, and what their payloads say.

Owns: `SettledTrace`, `TracedSpan`, `SpanTexts` and `texts_of`, which takes from a payload the few things that
detectors need. Whoever folds traces builds them, each detector reads them. Pure; never keeps a payload for
longer than the trace, and never raises over what a client sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Protocol

import attrs
import msgspec

from protocol.otlp.reading import WireSpan
from svc.domain.dialects import Reading, finish_reasons, read_texts
from svc.domain.messages import normal, parts, role_of, text_of, unwrapped
from svc.domain.rollup import Timed, by_start
from svc.domain.span import CostSource, Kind, Repeats, Status, ToolCall
from svc.domain.values import decoded, name, text

#: Kinds whose payload is read: what answers, and what is called.
TEXTUAL: Final[frozenset[Kind]] = frozenset({"llm", "tool", "mcp"})
CALLED: Final[frozenset[Kind]] = frozenset({"tool", "mcp"})

#: Attributes that hold the definitions of tools, whole or spelled out over keys that start so.
_DEFINITIONS: Final = ("gen_ai.tool.definitions", "ai.prompt.tools", "gen_ai.request.tools")
_DEFINITION_PREFIXES: Final = ("llm.tools.", "llm.request.functions.")
#: Dates, numbers and ids inside a prompt; without them it is the same prompt.
_CHANGING: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+")
#: So much of a prompt or of definitions is hashed.
_HASHED_CHARS: Final = 1 << 18
_HASH_CHARS: Final = 12
#: An application says the same prompts and defines the same tools again and again: of so many the hash is
#: remembered. To take the changing parts out of 900 characters costs 25 µs (measured November 2026).
_AGAIN: Final = 4096


@attrs.frozen(eq=False)
class AskedCall:
    """A tool call inside an answer: the tool's name, and its arguments as canonical text, None if unknown."""

    name: str
    arguments: str | None


# Not frozen: one for each span, and that costs twice as much to build. Whoever holds one reads it only.
@attrs.define(eq=False)
class SpanTexts:
    """What the payload of a span says.

    `answered` tells whether its output was captured at all; `said` is the text of it, None for none, and
    `media` whether it holds more than text. `finish_reasons` are in lower case. `arguments` and `result` are
    a tool's own, as canonical text. `prompt` and `tools` are hashes of the instructions and of the
    definitions of tools. `given` is the text of the input, read when asked for.
    """

    answered: bool = False
    said: str | None = None
    media: bool = False
    calls: tuple[AskedCall, ...] = ()
    finish_reasons: tuple[str, ...] = ()
    arguments: str | None = None
    result: str | None = None
    asked_model: str | None = None
    answered_model: str | None = None
    prompt: str | None = None
    tools: str | None = None
    release: str | None = None
    given: Callable[[], str] = attrs.field(default=lambda: "", repr=False)


class TracedSpan(Timed, Protocol):
    """What detectors read of the row of a span; `SpanRow` has it."""

    parent_span_id: bytes | None
    kind: Kind
    status: Status
    call_site_id: str
    usage_repeats: Repeats | None
    cost_source: CostSource | None
    total_cost: Decimal | None
    tool_calls: tuple[ToolCall, ...]


@attrs.frozen(eq=False)
class SettledTrace:
    """A settled trace. `spans` are in order of start; `texts` has those of textual spans whose payload is
    there; `call_site_id` is the trace's own.
    """

    spans: Sequence[TracedSpan]
    call_site_id: str
    texts: Mapping[bytes, SpanTexts] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls, rows: Sequence[TracedSpan], call_site_id: str, texts: Mapping[bytes, SpanTexts]
    ) -> SettledTrace:
        """From rows in any order."""
        return cls(sorted(rows, key=by_start), call_site_id, texts)

    @property
    def root(self) -> TracedSpan | None:
        """The earliest span without a parent; a trace without one has no turn."""
        return next((row for row in self.spans if row.parent_span_id is None), None)


def canonical(value: Any) -> str | None:
    """A value as text in which equal values are equal: JSON with sorted keys, other text stripped."""
    if value is None:
        return None
    opened = decoded(value)
    try:
        if opened is None:
            said = text_of(value)
            return None if said is None else said.strip()
        return msgspec.json.encode(opened, order="sorted").decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def texts_of(span: WireSpan, kind: Kind) -> SpanTexts:
    """What detectors need of a payload of a textual span."""
    reading = read_texts(span.attributes)
    found = reading.found
    release = text(span.resource.attributes.get("service.version"))
    release = None if release is None else name(release)
    if kind in CALLED:
        return SpanTexts(
            arguments=canonical(found.get("tool_arguments", found.get("input_value"))),
            result=canonical(found.get("tool_result", found.get("output_value"))),
            release=release,
        )
    answer = _Answer(span, reading)
    given = _Given(span, reading)
    asked, used = found.get("request_model"), found.get("response_model")
    return SpanTexts(
        answered=answer.captured,
        said=answer.said,
        media=answer.media,
        calls=tuple(answer.calls),
        finish_reasons=tuple(
            reason.strip().lower().replace("-", "_") for reason in finish_reasons(span) or answer.reasons
        ),
        asked_model=None if asked is None else name(asked),
        answered_model=None if used is None else name(used),
        prompt=given.prompt(),
        tools=_tools(span),
        release=release,
        given=given.whole,
    )


class _Answer:
    """An llm span's output, taken apart."""

    def __init__(self, span: WireSpan, reading: Reading) -> None:
        self.said: str | None = None
        self.media = False
        self.calls: list[AskedCall] = []
        self.reasons: list[str] = []
        messages = reading.output_messages(span)
        if not messages:
            value = reading.found.get("output_value")
            self.captured = value is not None
            self.said = text_of(value)
            return
        self.captured = True
        texts: list[str] = []
        for message in _normal(messages):
            if (reason := message.get("finish_reason")) is not None:
                self.reasons.append(reason)
            for part in message["parts"]:
                kind = part["type"]
                if kind == "text":
                    texts.append(part["text"])
                elif kind == "tool_call":
                    called = text(part["name"])
                    self.calls.append(AskedCall(called or "unknown", canonical(part["arguments"])))
                elif kind == "media":
                    self.media = True
        self.said = "\n".join(texts) or None


class _Given:
    """An llm span's input. Its messages are read once, its text only when asked for."""

    def __init__(self, span: WireSpan, reading: Reading) -> None:
        self._reading = reading
        self._instructions = reading.instructions(span.attributes)
        self._messages: list[Any] = reading.input_messages(span) or []

    def prompt(self) -> str | None:
        """The hash of the instructions, wherever they stand; None when none were captured."""
        told = text_of(self._instructions)
        said: list[str] = []
        for message in map(unwrapped, self._messages):
            if role_of(message) == "system":
                said += [words for part in parts(message) if (words := part.get("text"))]
        return _once(_hashes_of_prompts, "\n".join([told, *said] if told else said), _hash_of_prompt)

    def whole(self) -> str:
        """All that was said to the model."""
        return text_of(_normal(self._messages) or self._reading.found.get("input_value")) or ""


def _normal(messages: list[Any]) -> list[dict[str, Any]]:
    try:
        return normal(messages)
    except RecursionError:
        # Deeper than anybody could mean.
        return []


def _tools(span: WireSpan) -> str | None:
    attributes = span.attributes
    defined = [attributes[key] for key in _DEFINITIONS if key in attributes]
    if defined:
        if len(defined) == 1 and type(only := defined[0]) is str:
            return _once(_hashes_of_tools, only, _hash_of_tools)
        return _hash_of_tools(*defined)
    keys = tuple(attributes)
    if (spelled := _spelled.get(keys)) is None:
        spelled = tuple(sorted(key for key in keys if key.startswith(_DEFINITION_PREFIXES)))
        if sum(map(len, keys)) <= _KEYS_CHARS:
            if len(_spelled) >= _KEYS_BOUND:
                _spelled.clear()
            _spelled[keys] = spelled
    said = "\n".join(f"{key}={text_of(attributes[key])}" for key in spelled)
    return _digest(said) if said else None


def _hash_of_tools(*defined: Any) -> str | None:
    said = "\n".join(part for value in defined if (part := canonical(value)))
    return _digest(said) if said else None


def _hash_of_prompt(said: str) -> str | None:
    return _digest(_CHANGING.sub("#", said[:_HASHED_CHARS])) if said.strip() else None


#: Which of a span's keys spell out definitions, by all of them: an application's spans have few sets of keys.
_spelled: dict[tuple[str, ...], tuple[str, ...]] = {}
_KEYS_BOUND: Final = 1024
_KEYS_CHARS: Final = 4096

#: By a digest of the text, so that no text is kept.
_hashes_of_prompts: dict[bytes, str | None] = {}
_hashes_of_tools: dict[bytes, str | None] = {}


def _once(known: dict[bytes, str | None], said: str, hashed: Callable[[str], str | None]) -> str | None:
    key = hashlib.sha256(said.encode("utf-8", "replace")).digest()
    if key not in known:
        if len(known) >= _AGAIN:
            known.clear()
        known[key] = hashed(said)
    return known[key]


def _digest(said: str) -> str:
    return hashlib.sha256(said[:_HASHED_CHARS].encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
