"""What a dialect is.

Owns: the closed lists of fields and details, the `Dialect` that a file behind the table declares, and the
reading of records spelled out over numbered keys. Called by the dialect files and the table in this package.
Never raises over what a client sent, and never decides between dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import attrs

from protocol.otlp.reading import WireSpan

Field = Literal[
    "kind",
    "mcp",
    "mcp_method",
    "response_model",
    "request_model",
    "provider",
    "response_id",
    "session_id",
    "user_id",
    "call_site",
    "title",
    "named",
    "tool_name",
    "tool_call_id",
    "failed",
    "error_type",
    "error_message",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "cached_audio_tokens",
    "output_audio_tokens",
    "service_tier",
    "input_cost",
    "output_cost",
    "cache_read_cost",
    "cache_write_cost",
    "total_cost",
    "tool_arguments",
    "tool_result",
    "input_text",
    "input_value",
    "output_value",
]

#: What only the read side tells, so that the hot path does not look for it.
Detail = Literal[
    "agent",
    "workflow",
    "tool_description",
    "finish_reasons",
    "time_to_first_token_ms",
    "parameters",
]

Attributes = Mapping[str, Any]
Found = dict[Field, Any]
Reader = Callable[[Any], Any]
DetailReader = Callable[[Any, WireSpan], Any]
#: Of each record the name of each of its values and the key that holds it.
_Layout = tuple[tuple[tuple[str, str], ...], ...]
Messages = Callable[[WireSpan], list[Any] | None]


@attrs.frozen(eq=False)
class Dialect:
    """One family of attributes: which keys it uses for which field.

    `keys` lists, best first, the attribute keys of each field. `readers` replaces the field's usual reader
    for a key. Token totals are *inclusive* (input holds cache reads and writes, output holds reasoning) and
    so is `input_cost`: a dialect that reports exclusively adds up in `derive`. `derive` yields what no single
    key says, seeing the attributes and what was found so far. `input_messages` and `output_messages` give a
    span's messages in whichever style the dialect has, `svc.domain.spans.messages` reads all styles; an empty
    list says that what looks like messages to others is none. `details` lists keys as `keys` does; one that
    ends in `.*` stands for all that start so.
    """

    name: str
    #: As its makers call it.
    title: str
    keys: Mapping[Field, tuple[str, ...]]
    readers: Mapping[str, Reader] = attrs.field(factory=dict)
    derive: Callable[[Attributes, Found], Iterable[tuple[Field, Any]]] | None = None
    #: All that `derive` may yield.
    derives: tuple[Field, ...] = ()
    input_messages: Messages | None = None
    output_messages: Messages | None = None
    #: Messages that end with calls which answers of this dialect leave out; asked only of a span with one of
    #: `request_keys`.
    request: Messages | None = None
    request_keys: tuple[str, ...] = ()
    #: Of a span without events `input_messages` and `output_messages` say None unless it has one of these
    #: attributes; a key that ends in `*` stands for all that start so, and then there is no other.
    input_keys: tuple[str, ...] = ()
    output_keys: tuple[str, ...] = ()
    #: Keys that hold the system's instructions beside the messages; wanted on the read side only.
    instructions: tuple[str, ...] = ()
    details: Mapping[Detail, tuple[str, ...]] = attrs.field(factory=dict)
    detail_readers: Mapping[str, DetailReader] = attrs.field(factory=dict)
    #: Retrieved documents in any style that `svc.domain.spans.documents` reads; read side only.
    documents: Messages | None = None
    #: Arguments and result of a tool's span, where they stand on its events.
    tool_exchange: Callable[[WireSpan], Iterable[tuple[Field, Any]]] | None = None
    #: Whether the exporter's input holds what was cached; None when it counts as others do.
    counting: Literal["inclusive", "exclusive"] | None = None
    #: Whether its exporters write GenAI's keys for all that it has no own for.
    beside_genai: bool = False
    #: Keys that no field claims but that show the dialect is spoken, so that its functions are asked.
    marks: tuple[str, ...] = ()
    #: Keys that no dialect knows and that end so show it is spoken, and are what the exporter said of usage.
    endings: tuple[str, ...] = ()
    #: Whether an exception among its events says that the span failed, whatever its status.
    raises: bool = False
    #: Attributes that start so are what the exporter said of usage and cost.
    usage_prefixes: tuple[str, ...] = ()
    #: What else its functions read; a key that ends in `*` stands for all that start so.
    reads: tuple[str, ...] = ()


def holding(names: tuple[str, ...]) -> Callable[[tuple[str, ...]], object]:
    """A test of a span's keys: whether one of these names is among them."""
    starts = tuple(key[:-1] for key in names if key.endswith("*"))
    if starts:
        return lambda keys: any(key.startswith(starts) for key in keys)
    return frozenset(names).intersection


#: Where records lie among keys, by the keys, the prefix and what they stand within. An application's spans
#: have few sets of keys: so many are remembered once they came twice, of so many keys and characters.
_layouts: dict[tuple[tuple[str, ...], str, str], _Layout] = {}
_LAYOUTS_BOUND: Final = 1024
_LAID_OUT_KEYS: Final = 96
_LAID_OUT_CHARS: Final = 4096
#: Hashes of what came once.
_met: set[int] = set()
_MET_BOUND: Final = 4096


def indexed(attributes: Attributes, prefix: str, within: str = "") -> list[dict[str, Any]]:
    """The records that keys of the form `prefix<number>.rest` spell out, in the order of their numbers.

    Numbers may come in any order, with gaps and as large as they like; keys without one are passed over. The
    records hold what stands under `within` in them, by the key behind it. Measured November 2026, three
    messages among 24 keys: half of what it takes to look through the keys each time.
    """
    if len(attributes) > _LAID_OUT_KEYS:
        return _look_through(attributes, prefix, within)
    shape = (tuple(attributes), prefix, within)
    if (layout := _layouts.get(shape)) is None:
        if (digest := hash(shape)) not in _met:
            if len(_met) >= _MET_BOUND:
                _met.clear()
            _met.add(digest)
            return _look_through(attributes, prefix, within)
        records = _look_through(dict(zip(shape[0], shape[0], strict=True)), prefix, within)
        layout = tuple(tuple(record.items()) for record in records)
        if sum(map(len, shape[0])) <= _LAID_OUT_CHARS:
            if len(_layouts) >= _LAYOUTS_BOUND:
                _layouts.clear()
            _layouts[shape] = layout
    return [{name: attributes[key] for name, key in record} for record in layout]


def _look_through(attributes: Attributes, prefix: str, within: str) -> list[dict[str, Any]]:
    start = len(prefix)
    records: dict[int, dict[str, Any]] = {}
    for key in attributes:
        if key.startswith(prefix):
            number, _, path = key[start:].partition(".")
            if len(number) <= 20 and number.isascii() and number.isdigit():
                record = records.setdefault(int(number), {})
                if path.startswith(within):
                    record[path[len(within) :]] = attributes[key]
    return [records[number] for number in sorted(records)]
