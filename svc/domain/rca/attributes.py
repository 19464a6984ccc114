"""Reading the attributes of a trace for a root-cause analysis, from what was tallied and from payloads.

Owns: the words for turns and sizes, the keys that look like a tenant's, and what a bucket of the tallies says
of a trace that was counted in it. The store calls it for each unit. Pure, and never keeps a text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from protocol.otlp.reading import WireSpan
from svc.domain.attributes.conventions import CONVENTION_FIELDS, PREFIX
from svc.domain.detect.detectors.base import OTHER, MeasureName, site_of
from svc.domain.dialects import read
from svc.domain.rca.cohort import ATTRIBUTES, JOINED, TENANT, AttributeName, Mark
from svc.domain.spans.messages import normal
from svc.domain.spans.values import name, text

#: Buckets that say what a call site was and who answered it.
TELLING: Final[tuple[MeasureName, ...]] = (
    "seen_release",
    "seen_prompt",
    "seen_tools",
    "seen_schema",
    "answered_model",
)
#: Values of one attribute that are kept apart in one trace.
_VALUES: Final = 4
#: Tenant-like keys of one span that are read.
_KEYS: Final = 20
#: A value is no mark when its call site was first seen less than an hour before.
_SETTLED_SLOTS: Final = 12

_TENANT_LIKE: Final = re.compile(
    r"(?:^|[._-])(?:tenant|customer|client|account|org|organi[sz]ation|workspace|team|company|plan|tier|segment"
    r"|region|country|locale|language|channel|experiment|variant|cohort)(?:[._-]?(?:id|name|slug|code|type))?$",
    re.IGNORECASE,
)
#: The conventions that tell traces apart; what a call is, and by whom it is answered, tallies say.
FIELDS: Final = ("environment", "release", "host", "tenant", "region", "tag")
_BY_KEY: Final = {key: field for field in ("tenant", "region") for key in CONVENTION_FIELDS[field].keys}
_ENVIRONMENT: Final = ("deployment.environment.name", "deployment.environment")
_TURNS: Final = ((1, "1"), (2, "2"), (5, "3 to 5"), (10, "6 to 10"))
_SIZES: Final = ((256, "under 256"), (1024, "256 to 1k"), (4096, "1k to 4k"), (16384, "4k to 16k"))

BucketOf = tuple[MeasureName, str, str]


def turn_word(turn: int) -> str:
    """Which turn of its session a trace is, counted from one."""
    return next((word for most, word in _TURNS if turn <= most), "later than 10")


def size_word(chars: int) -> str:
    """How long a text is, in characters."""
    return next((word for end, word in _SIZES if chars < end), "16k and more")


def joined(values: Iterable[str]) -> str:
    """Several values of one attribute as one, in order."""
    return JOINED.join(sorted(set(values))[:_VALUES])


def told_by(bucket: BucketOf) -> tuple[tuple[AttributeName, str], ...]:
    """What a trace has that was counted in this bucket."""
    measure, _, detail = bucket
    if not detail or detail == OTHER:
        return ()
    match measure:
        case "seen_release":
            return (("release", detail),)
        case "seen_prompt":
            return (("prompt", detail),)
        case "seen_tools":
            return (("tool_definitions", detail),)
        case "seen_schema":
            return (("schema", _parts(detail)[0] or detail),)
        case "answered_model":
            requested, answering = (*_parts(detail), None, None)[:2]
            models = (("requested_model", requested), ("answered_model", answering))
            return tuple((attribute, model) for attribute, model in models if model)
    return ()


def _parts(detail: str) -> tuple[str | None, ...]:
    try:
        parts = msgspec.json.decode(detail, type=list[str | None])
    except msgspec.DecodeError:
        # Cut because it was too long.
        return (None,)
    return tuple(parts) or (None,)


def attributes_of_buckets(buckets: Iterable[BucketOf]) -> dict[AttributeName, str]:
    """What a trace has, by the buckets that it was counted in."""
    attributes: defaultdict[AttributeName, set[str]] = defaultdict(set)
    for bucket in buckets:
        for attribute, value in told_by(bucket):
            attributes[attribute].add(value)
    return {attribute: joined(values) for attribute, values in attributes.items()}


def marks_of(first_seen: Mapping[BucketOf, int]) -> list[Mark]:
    """The marks among buckets, given the first slot of each: a call site's first values are none."""
    first: dict[tuple[str, AttributeName, str], int] = {}
    since: dict[tuple[str, AttributeName], int] = {}
    for bucket, slot in first_seen.items():
        for attribute, value in told_by(bucket):
            key = (bucket[1], attribute, value)
            first[key] = min(slot, first.get(key, slot))
            since[key[:2]] = min(slot, since.get(key[:2], slot))
    return [
        Mark(attribute, value, site_of(subject) or subject, slot)
        for (subject, attribute, value), slot in first.items()
        if slot >= since[subject, attribute] + _SETTLED_SLOTS
    ]


def attributes_of_fields(values: Mapping[str, Iterable[str]]) -> dict[AttributeName, str]:
    """What the fields of a trace's spans say of where it ran and for whom: conventions and the user's own."""
    return {
        attribute: joined(field_values)
        for field, field_values in values.items()
        if (attribute := _attribute_of(field)) is not None
    }


def _attribute_of(field: str) -> AttributeName | None:
    if field in FIELDS:
        return field if field in ATTRIBUTES else TENANT + field
    return TENANT + field.removeprefix(PREFIX) if field.startswith(PREFIX) else None


def attributes_of_span(span: WireSpan) -> dict[AttributeName, str]:
    """What the resource and the attributes of a span say of where it ran and for whom."""
    resource = span.resource.attributes
    fields: dict[AttributeName, str] = {}
    environments = [
        environment for key in _ENVIRONMENT if (environment := text(resource.get(key))) is not None
    ]
    if environments:
        fields["environment"] = name(environments[0])
    if (host := text(resource.get("host.name"))) is not None:
        fields["host"] = name(host)
    tenants = {
        key: environment
        for attributes in (resource, span.attributes)
        for key, value in attributes.items()
        if _TENANT_LIKE.search(key) and (environment := _short(value)) is not None
    }
    # A convention goes by its own name, whatever the client calls it.
    return fields | {
        TENANT + _BY_KEY.get(key, name(key)): tenants[key] for key in sorted(tenants, reverse=True)[:_KEYS]
    }


def _short(value: Any) -> str | None:
    content = text(value)
    return None if content is None else name(content)


def message_size(span: WireSpan) -> str | None:
    """How long the first message of a user in a model's input is; None when none was captured."""
    try:
        messages = normal(read(span.attributes).input_messages(span) or [])
    except RecursionError:
        # Deeper than anybody could mean.
        return None
    for message in messages:
        if message["role"] == "user":
            return size_word(sum(len(part.get("text") or "") for part in message["parts"]))
    return None
