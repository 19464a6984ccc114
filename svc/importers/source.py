"""What every importer gives: pages of OTLP behind a cursor, and what the product says of its own tokens.

Owns the shapes, and the writing of Python values as OTLP JSON, which the importers share. Never fetches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import attrs
import msgspec

from protocol.operator import OperatorError
from protocol.otlp.admission import Form
from svc.domain.calendar import EPOCH

#: A trace id and a span id, one behind the other.
Identity = bytes

_INT64: Final = 1 << 63


@attrs.frozen
class ImportWindow:
    """Which spans are wanted, by when they started: half open. `high` is fixed when an import begins."""

    low: datetime | None
    high: datetime

    def holds(self, moment: datetime) -> bool:
        """Whether a span that started then is wanted."""
        return (self.low is None or moment >= self.low) and moment < self.high


@attrs.frozen
class ImportPage:
    """One step of a source. `cursor` is where the next one begins, None when this was the last.

    `told` has each span that the source gave, by its identity, with the tokens that the source itself says it
    used; None where it says nothing. `came` says when a span was stored where it comes from, where that is
    known. `unread` counts what is no span, by reason.
    """

    bodies: tuple[tuple[Form, bytes], ...] = attrs.field(repr=False)
    cursor: str | None
    told: Mapping[Identity, int | None] = attrs.field(factory=dict, repr=False)
    came: Mapping[Identity, datetime] = attrs.field(factory=dict, repr=False)
    unread: Mapping[str, int] = attrs.field(factory=dict)


class Source(Protocol):
    """One product's history. `leaves` are sentences on what does not move over."""

    name: str
    leaves: tuple[str, ...]

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """The page behind a cursor, the first one behind None."""
        ...


def identity(trace_id: str, span_id: str) -> Identity:
    """An identity from ids in hexadecimal."""
    return bytes.fromhex(trace_id) + bytes.fromhex(span_id)


def hex_id(identifier: str, size_bytes: int) -> str:
    """An id as OTLP has it: as it is where it is one, else derived from it, always the same."""
    text = identifier.strip().lower()
    if len(text) == 2 * size_bytes and _is_hex(text) and text.strip("0"):
        return text
    return hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[: 2 * size_bytes]


def _is_hex(text: str) -> bool:
    return not text.strip("0123456789abcdef")


def any_value(value: Any) -> dict[str, Any]:
    """A Python value as OTLP JSON has it."""
    match value:
        case None:
            return {}
        case bool():
            return {"boolValue": value}
        case int() if -_INT64 <= value < _INT64:
            return {"intValue": str(value)}
        case int():
            return {"stringValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list() | tuple():
            return {"arrayValue": {"values": [any_value(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": pairs_of(value)}}
        case other:
            return {"stringValue": str(other)}


def pairs_of(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP JSON has them."""
    return [{"key": str(key), "value": any_value(value)} for key, value in attributes.items()]


def request_of(groups: Iterable[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]]) -> bytes:
    """One request: spans with their resource and scope, all as OTLP JSON."""
    return msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": resource.get("resource", {}),
                    "schemaUrl": resource.get("schemaUrl", ""),
                    "scopeSpans": [{**scope, "spans": spans}],
                }
                for resource, scope, spans in groups
            ]
        }
    )


def service_resource(name: str, **attributes: Any) -> dict[str, Any]:
    """A resource of OTLP JSON with the name of its service."""
    return {"resource": {"attributes": pairs_of({"service.name": name, **attributes})}}


def nanoseconds(moment: datetime) -> str:
    """A moment as OTLP JSON has it; microseconds are kept to the last one."""
    since = moment - EPOCH
    return str((since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000)


def instant_of(text: Any) -> datetime | None:
    """The moment that a text of ISO 8601 names, None for anything else."""
    if not isinstance(text, str) or len(text) > 64:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def camel(name: str) -> str:
    """A name with underscores as JSON of protobuf spells it."""
    head, *words = name.split("_")
    return head + "".join(word.capitalize() for word in words)


def json_of(answer: bytes, product: str) -> dict[str, Any]:
    """The object in an answer. Raises `OperatorError` when it is none."""
    try:
        document = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = None
    if not isinstance(document, dict):
        raise OperatorError(f"what answers there is not {product}: its answer is no JSON object")
    return document


def cursor_of(value: Any) -> str | None:
    """Where the next page begins, as the product says it; None behind the last one."""
    return value if isinstance(value, str) and value else None


def json_text(value: Any) -> str:
    """A value as an attribute holds it that speaks JSON; a text as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
