"""The values of a span's attribute fields, taken on the hot path.

Owned by a decoder: `AttributeReader` remembers what the last resource said and which keys each project has
promoted. `svc.domain.intake.batches` calls it once a span; the store turns its pairs into codes. Never raises
over what a client sent, never keeps more than `MOST_TOGETHER` values of a span.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from protocol.otlp.reading import WireSpan
from protocol.text import clean
from svc.domain.attributes.conventions import CONVENTION_FIELDS, CONVENTIONS, METADATA, spellings
from svc.domain.spans.service_names import without_instance
from svc.domain.spans.span import SpanRow
from svc.domain.spans.values import NAME_CHARS, text

#: Values of one span: fields times the tags of each.
MOST_TOGETHER: Final = 48
#: Tags, and what else may be many, of one field.
MOST_OF_ONE: Final = 16
#: A JSON object of metadata that is longer is not opened.
METADATA_CHARS: Final = 16_384
#: The key of OpenInference whose value is such an object.
METADATA_OBJECT: Final = "metadata"
#: What spans said that is remembered, no longer than these characters; then all is forgotten.
_REMEMBERED_BOUND: Final = 2_048
_REMEMBERED_CHARS: Final = 1_024

#: Field and value, field and value, …: flat, since it is a key of a dictionary a span.
Pairs = tuple[str, ...]
#: What the fields of promoted keys are called, by the canonical names of those.
Promoted = Mapping[str, str]
#: By key: the place of its word among the spellings of a field, and the field.
Wanted = Mapping[str, tuple[int, str]]

_UNREADABLE: Final = "\ufffd"
_ESCAPE: Final = b"\\"
_METADATA_KEY: Final = METADATA_OBJECT.encode()

#: Behind all spellings of a convention.
_LAST_PLACE: Final = 900
_MANY: Final = frozenset(convention.name for convention in CONVENTIONS if convention.many)
_BY_CONVENTION: Final[Wanted] = {
    key: (place, convention.name) for convention in CONVENTIONS for place, key in enumerate(convention.keys)
}


def wanted_keys(promoted: Promoted) -> Wanted:
    """The keys that are looked for: of the conventions, and of promoted fields by their canonical names."""
    # A key that people call as a convention counts where none of its own spellings is there.
    by_key = {
        key: (_LAST_PLACE if field in CONVENTION_FIELDS else 0, field)
        for name, field in promoted.items()
        for key in spellings(name)
    }
    return {**by_key, **_BY_CONVENTION}


@attrs.define(eq=False)
class AttributeReader:
    """Takes the pairs of spans. One owner: the task that decodes."""

    _promoted: Mapping[int, Promoted] = attrs.field(factory=dict)
    _wanted: dict[int, Wanted] = attrs.field(factory=dict)
    _project_id: int = -1
    _resource: Any = None
    _keys: Wanted = attrs.field(factory=lambda: _BY_CONVENTION)
    _of_resource: dict[str, tuple[int, Sequence[str]]] = attrs.field(factory=dict)
    _flat: Pairs = ()
    _remembered: dict[tuple[Any, ...], Pairs] = attrs.field(factory=dict)

    def adopt(self, promoted: Mapping[int, Promoted]) -> None:
        """From now on these are promoted, by project."""
        if promoted != self._promoted:
            self._promoted = promoted
            self._wanted = {project_id: wanted_keys(names) for project_id, names in promoted.items()}
            self._resource = None
            self._remembered.clear()

    def pairs(self, project_id: int, span: WireSpan, row: SpanRow) -> Pairs:
        """The fields of a span with their values. What a span says counts before what its resource says."""
        if span.resource is not self._resource or project_id != self._project_id:
            self._enter(project_id, span)
        attributes = span.attributes
        keys = self._keys.keys() & attributes.keys()
        tool = row.tool_calls[0].name if row.kind == "tool" or row.kind == "mcp" else None
        metadata = attributes.get(METADATA_OBJECT)
        if not keys and tool is None and metadata is None:
            return self._flat
        # Spans say the same again and again: 2 µs instead of 5 (November 2026).
        texts = [tool, metadata if type(metadata) is str else f"\0{metadata!r}"]
        for key in keys:
            value = attributes[key]
            texts.append(key)
            # As it is written: 1 and True would be one.
            texts.append(value if type(value) is str else f"\0{value!r}")
        if max(map(_chars, texts)) > _REMEMBERED_CHARS:
            return self._read(attributes, keys, tool, metadata)
        together = (self._flat, *texts)
        remembered = self._remembered.get(together)
        if remembered is None:
            if len(self._remembered) >= _REMEMBERED_BOUND:
                self._remembered.clear()
            remembered = self._remembered[together] = self._read(attributes, keys, tool, metadata)
        return remembered

    def _read(
        self, attributes: Mapping[str, Any], keys: Iterable[str], tool: str | None, metadata: Any
    ) -> Pairs:
        values = dict(self._of_resource)
        for key in keys:
            self._take(values, key, attributes[key], before=1)
        for key, value in metadata_of(metadata).items():
            if key in self._keys:
                self._take(values, key, value, before=1)
        if tool is not None:
            values["tool"] = (0, (tool,))
        return _flat(values)

    def _enter(self, project_id: int, span: WireSpan) -> None:
        self._project_id, self._resource = project_id, span.resource
        self._keys = self._wanted.get(project_id, _BY_CONVENTION)
        self._of_resource = {}
        for key in self._keys.keys() & span.resource.attributes.keys():
            self._take(self._of_resource, key, span.resource.attributes[key], before=0)
        self._flat = _flat(self._of_resource)

    def _take(
        self, values: dict[str, tuple[int, Sequence[str]]], key: str, value: Any, *, before: int
    ) -> None:
        place, field = self._keys[key]
        # A span's own word stands before any of its resource.
        rank = place - 1_000 * before
        earlier = values.get(field)
        if earlier is None or rank < earlier[0]:
            texts = _texts_of(field, value)
            if texts:
                values[field] = (rank, texts)


def _chars(text: str | None) -> int:
    return 0 if text is None else len(text)


def metadata_of(value: Any) -> Mapping[str, Any]:
    """A JSON object of metadata as attributes of their own, `metadata.plan`; nothing where it is none."""
    if type(value) is str:
        if not value.startswith("{") or len(value) > METADATA_CHARS:
            return {}
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return {}
    if not isinstance(value, Mapping):
        return {}
    return {f"metadata.{key}": member for key, member in value.items() if type(key) is str}


def word_of(convention: str, span: WireSpan) -> str | None:
    """The value of one convention alone, its first if it has many: what the span says, else its resource."""
    for attributes in (span.attributes, span.resource.attributes):
        for key in CONVENTION_FIELDS[convention].keys:
            if key in attributes and (texts := _texts_of(convention, attributes[key])):
                return texts[0]
    return None


def says(span: WireSpan, name: str, value: str | None) -> bool:
    """Whether a span, or its resource, has this value of an attribute that is no field, one of a list too.

    None asks whether neither has the attribute.
    """
    said_values = _said(span, name)
    if value is None:
        return not said_values
    wanted_text = value_text(value)
    for said_value in said_values:
        texts = _texts(said_value) if isinstance(said_value, (list, tuple)) else (value_text(said_value),)
        if wanted_text in texts or (type(said_value) is float and repr(said_value) == value):
            return True
    return False


def may_say(envelope: bytes, name: str) -> bool:
    """Whether a span that was not opened may say something of an attribute: not where its key is nowhere."""
    if _UNREADABLE in name:
        # Stands for what was not readable, in other bytes.
        return True
    key = name.removeprefix(METADATA[0]) if name.startswith(METADATA[0]) else name
    if key.encode("utf-8", "replace") in envelope:
        return True
    # The key of a JSON object may be written with escapes.
    return key is not name and _ESCAPE in envelope and _METADATA_KEY in envelope


def _said(span: WireSpan, name: str) -> list[Any]:
    """What a span and its resource say of an attribute, in any of its spellings."""
    values: list[Any] = []
    for attributes in (span.attributes, span.resource.attributes):
        values += [attributes[key] for key in spellings(name) if key in attributes]
        if name.startswith(METADATA[0]) and METADATA_OBJECT in attributes:
            member = metadata_of(attributes[METADATA_OBJECT]).get(name)
            values += [] if member is None else [member]
    return values


def value_text(value: Any) -> str | None:
    """A value as it stands in its field: a text, a whole number or a truth; None for anything else."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return None
    written = text(value)
    return None if written is None else clean(written[:NAME_CHARS]).strip() or None


def _texts_of(field: str, value: Any) -> Sequence[str]:
    if field == "service" and type(value) is str:
        # An instance is no service of its own.
        value = without_instance(value)
    return _texts(value) if field in _MANY else _one(value)


def _one(value: Any) -> tuple[str, ...]:
    written = value_text(value)
    return () if written is None else (written,)


def _texts(value: Any) -> Sequence[str]:
    """The members of a list, of a list written as JSON, or of a text with commas."""
    if type(value) is str and value.startswith("["):
        try:
            value = msgspec.json.decode(value[:METADATA_CHARS])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return _one(value)
    elif type(value) is str:
        value = value[:METADATA_CHARS].split(",")
    if not isinstance(value, (list, tuple)):
        return _one(value)
    texts = dict.fromkeys(text for member in value[:MOST_OF_ONE] if (text := value_text(member)) is not None)
    return tuple(texts)


def _flat(values: Mapping[str, tuple[int, Sequence[str]]]) -> Pairs:
    flat = [part for field in sorted(values) for value in values[field][1] for part in (field, value)]
    return tuple(flat[: 2 * MOST_TOGETHER])
