"""One settled trace as detectors read it: the rows of its spans, and what their payloads say.

Owns: `SettledTrace`, `TracedSpan`, `SpanTexts` and `texts_of`, which takes from a payload the few things that
detectors need. Whoever tallies traces builds them, each detector reads them. Pure; never keeps a payload for
longer than the trace, and never raises over what a client sent.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import attrs
import msgspec
from xxhash import xxh3_128_digest

from protocol.otlp.reading import WireSpan
from svc.domain.attributes.reading import word_of
from svc.domain.detect.detectors.answers import Answer, AskedCall, canonical
from svc.domain.dialects import Reading, read_texts
from svc.domain.feedback.entries import Rating
from svc.domain.marks.forms import demanded_blocks
from svc.domain.marks.tool_schemas import ToolSchemas, tools_offered
from svc.domain.spans.conversation_history import STAND_IN_ROLE, shortened
from svc.domain.spans.messages import normal, parts, role_of, text_of, unwrapped
from svc.domain.spans.span import CostSource, Kind, Repeats, Status, ToolCall
from svc.domain.spans.values import name
from svc.domain.traces.rollup import Timed, by_start

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
#: Prompts and definitions come again and again: of so many the hash is remembered (25 µs for 900 characters).
_AGAIN: Final = 4096
_Source = TypeVar("_Source", str, bytes)


def _nothing() -> str:
    return ""


def _nobody() -> bool:
    return False


# A struct, and not frozen: one for each span. Whoever holds one reads it only.
class SpanTexts(msgspec.Struct, eq=False, gc=False):
    """What the payload of a span says.

    `answered` tells whether its output was captured at all; `said` is the text of it, None for none, and
    `media` whether it holds more than text. `finish_reasons` are in lower case. `arguments` and `result` are
    a tool's own, as canonical text. `prompt` and `tools` are hashes of the instructions and of the
    definitions of tools, `tool_schemas` those definitions, and `demanded` the blocks that the instructions
    demand of every answer. `given` is the text of the input, and `tools_heard` whether results of tools are,
    or may be, in it; both are read when asked for.

    Of a lean span (`Frame.lean`) `given` and `tools_heard` say nothing; unless `sure`, only the whole tells.
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
    given: Callable[[], str] = _nothing
    sure: bool = True
    tool_schemas: ToolSchemas | None = None
    tools_heard: Callable[[], bool] = _nobody
    demanded: tuple[str, ...] = ()


class TracedSpan(Timed, Protocol):
    """What detectors read of the row of a span; `SpanRow` has it."""

    parent_span_id: bytes | None
    kind: Kind
    status: Status
    error_type: str | None
    error_message: str | None
    call_site_id: str
    usage_repeats: Repeats | None
    cost_source: CostSource | None
    tool_calls: tuple[ToolCall, ...]

    @property
    def total_cost(self) -> Decimal | float | None: ...


@attrs.frozen(eq=False)
class SettledTrace:
    """A settled trace. `spans` are in order of start; `texts` has those of textual spans with a payload;
    `call_site_id` is its own; `paths` are the agent paths of its calls, where detectors tell agents apart.
    """

    spans: Sequence[TracedSpan]
    call_site_id: str
    texts: Mapping[bytes, SpanTexts] = attrs.field(factory=dict)
    paths: Mapping[bytes, str] = attrs.field(factory=dict)
    ratings: Sequence[Rating] = ()

    @classmethod
    def of(
        cls,
        rows: Sequence[TracedSpan],
        call_site_id: str,
        texts: Mapping[bytes, SpanTexts],
        paths: Mapping[bytes, str] | None = None,
        ratings: Sequence[Rating] = (),
    ) -> SettledTrace:
        """From rows in any order."""
        return cls(sorted(rows, key=by_start), call_site_id, texts, paths or {}, ratings)

    @property
    def root(self) -> TracedSpan | None:
        """The earliest span without a parent; a trace without one has no turn."""
        return next((row for row in self.spans if row.parent_span_id is None), None)


def is_blank(answer: str | None) -> bool:
    """Whether there is nothing to read in it. A long text is not copied to tell."""
    return not answer or answer.isspace()


def texts_of(span: WireSpan, kind: Kind, spared: int | None = None) -> SpanTexts:
    """What detectors need of a payload of a textual span; `spared` says of a lean one how many messages it
    does without.
    """
    lean = spared is not None
    spared = spared or 0
    reading = read_texts(span.attributes)
    fields = reading.found
    release = word_of("release", span)
    if kind in CALLED:
        return SpanTexts(
            arguments=canonical(fields.get("tool_arguments", fields.get("input_value"))),
            result=canonical(fields.get("tool_result", fields.get("output_value"))),
            release=release,
            sure=not spared,
        )
    answer = Answer(span, reading)
    reasons = tuple(reading.finish_reasons(span) or answer.reasons)
    requested_model, answering_model = fields.get("request_model"), fields.get("response_model")
    prompt, stood_in = _prompt(span, reading, spared)
    tools, tool_schemas = _tools(span)
    # In order: fifteen names cost more than what most of them stand for.
    return SpanTexts(
        answer.captured,
        answer.said,
        answer.media,
        tuple(answer.calls),
        _reasons.get(reasons) or _normal(reasons),
        None,
        None,
        None if requested_model is None else name(requested_model),
        None if answering_model is None else name(answering_model),
        prompt,
        tools,
        release,
        # It would keep the payload until its whole trace is read, out of the processor's caches.
        _nothing if lean else partial(_input_text, span, reading),
        stood_in == spared,
        tool_schemas,
        _nobody if lean else partial(_may_have_results, span, reading),
        _demands.get(prompt, ()) if prompt is not None else (),
    )


#: Reasons as they came, as they are compared.
_reasons: dict[tuple[str, ...], tuple[str, ...]] = {}
_REASONS_CHARS: Final = 64


def _normal(reasons: tuple[str, ...]) -> tuple[str, ...]:
    normal_ones = tuple([reason.strip().lower().replace("-", "_") for reason in reasons])
    if reasons and sum(map(len, reasons)) <= _REASONS_CHARS:
        if len(_reasons) >= _AGAIN:
            _reasons.clear()
        _reasons[reasons] = normal_ones
    return normal_ones


def _input_text(span: WireSpan, reading: Reading) -> str:
    """All that was said to the model."""
    messages = reading.input_messages(span) or []
    try:
        conversation = normal(messages)
    except RecursionError:
        conversation = []
    return text_of(conversation or reading.found.get("input_value")) or ""


def _may_have_results(span: WireSpan, reading: Reading) -> bool:
    """Whether the model was given results of tools; so it may have been where its input was not captured."""
    messages = reading.input_messages(span)
    if not messages:
        return True
    try:
        conversation = normal(messages)
    except RecursionError:
        return True
    return any(
        message["role"] == "tool" or any(part["type"] == "tool_result" for part in message["parts"])
        for message in conversation
    )


_NULL: Final = b"null"


class _Head(msgspec.Struct, gc=False):
    """A message of a history, of which the role is read and the rest is left as it came."""

    role: str
    parts: msgspec.Raw = msgspec.Raw(_NULL)
    content: msgspec.Raw = msgspec.Raw(_NULL)


_OTHERS: Final = frozenset({"user", "assistant", "tool"})
_heads: Final = msgspec.json.Decoder(list[_Head]).decode
#: A message alone whose parts are shorter may be hollow; then others may have said more.
_HOLLOW_BYTES: Final = 16


def _prompt(span: WireSpan, reading: Reading, spared: int) -> tuple[str | None, int]:
    """The hash of the instructions, wherever they stand, None when none were captured; and how many messages
    of the history only stand in for others.
    """
    instructions = text_of(reading.instructions(span.attributes))
    if (history := reading.history(span)) is not None:
        try:
            systems, stood_in = _systems(shortened(history, spared) if spared else history)
            if systems is not None and instructions is None and len(systems) == 1:
                return _once(_hashes_of_systems, systems[0], systems[0], _hash_of_system), stood_in
            if systems is not None:
                return _prompt_of(instructions, _words(map(_system, systems))), stood_in
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            # Others than msgspec may read it.
            pass
    messages = [unwrapped(message) for message in reading.input_messages(span) or []]
    return _prompt_of(
        instructions, _words(message for message in messages if role_of(message) == "system")
    ), 0


def _prompt_of(instructions: str | None, texts: list[str]) -> str | None:
    prompt = "\n".join([instructions, *texts] if instructions else texts)
    return _once(_hashes_of_prompts, prompt.encode("utf-8", "replace"), prompt, _hash_of_prompt)


def _is_short(parts_held: msgspec.Raw) -> bool:
    return len(bytes(parts_held)) < _HOLLOW_BYTES


def _systems(history: str) -> tuple[list[bytes] | None, int]:
    """What each message of the system holds, as JSON, None where the messages must be opened to tell; and how
    many messages only stand in for others.

    Of a history, which is long, nothing else is asked, and to open it takes four times as long. Raises what
    msgspec does for JSON that it does not read.
    """
    heads = _heads(history)
    if not heads or (len(heads) == 1 and (head := heads[0]).role != STAND_IN_ROLE and _is_short(head.parts)):
        return None, 0
    systems: list[bytes] = []
    stood_in = 0
    for head in heads:
        role = head.role
        if role == STAND_IN_ROLE:
            stood_in += 1
            continue
        if role in _OTHERS:
            continue
        # As `role_of` has it.
        if not role:
            return None, 0
        if role_of({"role": role}) == "system":
            parts = bytes(head.parts)
            systems.append(bytes(head.content) if parts == _NULL else parts)
    return systems, stood_in


def _system(parts: bytes) -> Mapping[str, Any]:
    return {"role": "system", "parts": msgspec.json.decode(parts)}


def _words(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    return [words for message in messages for part in parts(message) if (words := part.get("text"))]


def _tools(span: WireSpan) -> tuple[str | None, ToolSchemas | None]:
    """The hash of the definitions of tools, and what they say."""
    attributes = span.attributes
    defined = [key for key in _DEFINITIONS if key in attributes]
    if len(defined) == 1 and type(only := attributes[defined[0]]) is str:
        return _definitions_once(only, attributes, defined)
    if defined:
        definitions = "\n".join(part for key in defined if (part := canonical(attributes[key])))
        return _definitions_once(definitions, attributes, defined)
    keys = tuple(attributes)
    if (spelled := _spelled.get(keys)) is None:
        spelled = tuple(sorted(key for key in keys if key.startswith(_DEFINITION_PREFIXES)))
        if sum(map(len, keys)) <= _KEYS_CHARS:
            if len(_spelled) >= _KEYS_BOUND:
                _spelled.clear()
            _spelled[keys] = spelled
    if not spelled:
        return None, None
    definitions = "\n".join(f"{key}={text_of(attributes[key])}" for key in spelled)
    return _definitions_once(definitions, attributes, spelled)


def _definitions_once(
    definitions: str, attributes: Mapping[str, Any], keys: Sequence[str]
) -> tuple[str | None, ToolSchemas | None]:
    location = keys[0], xxh3_128_digest(definitions.encode("utf-8", "replace"), _SEED)
    if (entry := _definitions.get(location)) is not None:
        return entry
    if len(_definitions) >= _DEFINITIONS_BOUND:
        _definitions.clear()
    if len(keys) == 1 and keys[0] in _DEFINITIONS:
        normal_text = canonical(definitions)
        tools = _digest(normal_text) if normal_text else None
    else:
        tools = _digest(definitions) if definitions else None
    schemas = tools_offered(attributes, keys) if len(definitions) <= _READ_CHARS else None
    _definitions[location] = entry = tools, schemas
    return entry


def _hash_of_prompt(prompt: str) -> str | None:
    if not prompt.strip():
        return None
    digest = _digest(_CHANGING.sub("#", prompt[:_HASHED_CHARS]))
    if blocks := demanded_blocks(prompt):
        if len(_demands) >= _AGAIN:
            # Together, so that no hash is remembered without its demands.
            for cache in (_hashes_of_prompts, _hashes_of_systems, _demands):
                cache.clear()
        _demands[digest] = blocks
    return digest


def _hash_of_system(parts: bytes) -> str | None:
    return _hash_of_prompt("\n".join(_words((_system(parts),))))


#: Which of a span's keys spell out definitions, by all of them: an application's spans have few sets of keys.
_spelled: dict[tuple[str, ...], tuple[str, ...]] = {}
_KEYS_BOUND: Final = 1024
_KEYS_CHARS: Final = 4096

#: By a digest of the text, so that no text is kept. Nobody outside knows its seed, so nobody can choose two
#: texts of one digest; SHA-256 took 0.9 µs for 1 KB, this 0.1 (measured November 2026).
_SEED: Final = secrets.randbits(64)
_UNKNOWN: Final = "?"
_hashes_of_prompts: dict[bytes, str | None] = {}
_hashes_of_systems: dict[bytes, str | None] = {}
#: What prompts demand of every answer, by the hash of each that demands anything.
_demands: dict[str, tuple[str, ...]] = {}
#: Their hash, and the schemas in them. A schema is larger than a hash: so many, of so much text each.
_definitions: dict[tuple[str, bytes], tuple[str | None, ToolSchemas | None]] = {}
_DEFINITIONS_BOUND: Final = 256
_READ_CHARS: Final = 1 << 17


def _once(
    cache: dict[bytes, str | None], data: bytes, source: _Source, hash_of: Callable[[_Source], str | None]
) -> str | None:
    key = xxh3_128_digest(data, _SEED)
    if (digest := cache.get(key, _UNKNOWN)) is not _UNKNOWN:
        return digest
    if len(cache) >= _AGAIN:
        cache.clear()
    cache[key] = digest = hash_of(source)
    return digest


def _digest(content: str) -> str:
    return hashlib.sha256(content[:_HASHED_CHARS].encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
