"""Which keys the spans of a project have beside the conventions, and which of them are worth a field.

Owns `KeyCount`, what is known of a key, and `KeyCensus`, which a decoder feeds with some of its spans. Values
are kept as hashes, never as they are: what decides is how many there are and what they look like. Without a
clock; `svc.store.attributes` adds up and promotes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import attrs

from protocol.otlp.reading import WireSpan
from protocol.text import clean
from svc.domain.attributes.conventions import CONVENTIONS, KEY_CHARS, METADATA, canonical
from svc.domain.attributes.reading import METADATA_OBJECT, metadata_of
from svc.domain.detect.secrets.search import may_hold_secrets
from svc.domain.dialects import is_read

#: Spans of a project that are looked into between two rounds, and then one in so many.
FIRST: Final = 64
ONE_IN: Final = 64
#: Keys of a project that are counted at once; others wait for the next round.
MOST_COUNTED: Final = 300
#: A key is promoted when it was seen so often, with so few values.
PROMOTED_AFTER: Final = 100
MOST_DISTINCT: Final = 200

#: Why a key is not worth a field.
Unfit = Literal["secret", "person", "id", "number", "text", "plumbing", "many"]
#: What each says to people.
UNFIT: Final[Mapping[Unfit, str]] = {
    "secret": "may hold secrets",
    "person": "may hold personal data",
    "id": "holds ids",
    "number": "holds numbers",
    "text": "holds long texts",
    "plumbing": "describes the transport, not the application",
    "many": f"has more than {MOST_DISTINCT} values",
}

_SECRET: Final = re.compile(r"(?i)key|token|secret|auth|passw|cookie|credential|signature")
_PERSON: Final = re.compile(r"(?i)mail|phone|address|birth|first_?name|last_?name|full_?name|ssn|iban")
_ID: Final = re.compile(r"(?i)(^|[._-])(id|uuid|guid|hash|sha|digest|trace|span|run)s?$|[a-z](Id|UUID)$")
_PLUMBING: Final = re.compile(
    r"(http|url|net|network|server|client|peer|db|rpc|messaging|faas|cloud|k8s|container|host|os|process|thread"
    r"|code|exception|error|otel|telemetry|service|deployment|user_agent|enduser|user|session|svc|event)[._]"
)
_NUMBER: Final = re.compile(r"[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?")
#: Hexadecimal of eight and more, UUIDs, and whatever mixes letters and digits at such length.
_OPAQUE: Final = re.compile(r"(?=[^a-z]*[a-z])(?=\D*\d)[0-9a-z_-]{16,}|[0-9a-f-]{8,}", re.IGNORECASE)
_MAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")

_CONVENTIONAL: Final = frozenset(key for convention in CONVENTIONS for key in convention.keys)


@attrs.define(eq=False)
class KeyCount:
    """A key over the spans that were looked into: how many had it, and what is against it.

    `values` are hashes; they stop one beyond `MOST_DISTINCT`.
    """

    spans: int = 0
    values: set[bytes] = attrs.field(factory=set)
    unfit: Unfit | None = None

    def note(self, value: Any) -> None:
        """One more span has it."""
        self.spans += 1
        if self.unfit is None:
            self.unfit = unfit_value(value)
        if self.unfit is None:
            self._add([value_hash(value)])

    def merge(self, other: KeyCount) -> None:
        """Add what another one counted."""
        self.spans += other.spans
        self.unfit = self.unfit or other.unfit
        self._add(other.values)

    def _add(self, hashes: Iterable[bytes]) -> None:
        self.values.update(hashes)
        if len(self.values) > MOST_DISTINCT:
            self.unfit = self.unfit or "many"
            self.values = set(sorted(self.values)[: MOST_DISTINCT + 1])

    @property
    def worth_a_field(self) -> bool:
        """Whether it was seen often enough, with more than one value and few of them."""
        return self.unfit is None and self.spans >= PROMOTED_AFTER and 2 <= len(self.values) <= MOST_DISTINCT


@attrs.define(eq=False)
class KeyCensus:
    """What a decoder saw since the last `take`. One owner: the task that decodes."""

    _counts: dict[int, dict[str, KeyCount]] = attrs.field(factory=dict)
    _spans: dict[int, int] = attrs.field(factory=dict)

    def note(self, project_id: int, span: WireSpan) -> None:
        """Look into a span, or pass it over."""
        seen = self._spans[project_id] = self._spans.get(project_id, 0) + 1
        if seen > FIRST and seen % ONE_IN:
            return
        counts = self._counts.setdefault(project_id, {})
        attributes = {**span.resource.attributes, **span.attributes}
        if METADATA_OBJECT in attributes:
            attributes |= metadata_of(attributes[METADATA_OBJECT])
        for key, value in attributes.items():
            if key in _CONVENTIONAL or len(key) > KEY_CHARS or not key.isprintable():
                continue
            # What is a user's own is read for its session alone, by keys that are ids.
            if is_read(key) and not key.startswith(METADATA):
                continue
            name = clean(canonical(key))
            count = counts.get(name)
            if count is None:
                if len(counts) >= MOST_COUNTED:
                    continue
                count = counts[name] = KeyCount(unfit=unfit_name(name))
            count.note(value)

    def take(self) -> dict[int, dict[str, KeyCount]]:
        """All of it by project and key, and start anew."""
        counts, self._counts, self._spans = self._counts, {}, {}
        return counts


def unfit_name(name: str) -> Unfit | None:
    """What the name of a key has against it."""
    if _SECRET.search(name):
        return "secret"
    if _PERSON.search(name):
        return "person"
    if _PLUMBING.match(name):
        return "plumbing"
    return "id" if _ID.search(name) else None


def unfit_value(value: Any) -> Unfit | None:
    """What a value has against its key."""
    if type(value) is bool:
        return None
    if type(value) in (int, float):
        return "number"
    if type(value) is not str or not value or len(value) > KEY_CHARS or "\n" in value:
        return "text"
    if may_hold_secrets([value]):
        return "secret"
    if _MAIL.fullmatch(value):
        return "person"
    if _NUMBER.fullmatch(value):
        return "number"
    return "id" if _OPAQUE.fullmatch(value) else None


def value_hash(value: Any) -> bytes:
    """Eight bytes that stand for a value."""
    return hashlib.blake2b(str(value).encode("utf-8", "replace"), digest_size=8).digest()
