"""Single values of OTLP/JSON, as real exporters write them: ids, numbers, attributes, values in values.

Owns the reading of everything below a span's own fields. `protocol.otlp.json` and `protocol.otlp.json_pieces`
call it. Raises `OverLimit` for a value in more arrays and maps than the limit, and nothing else.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from protocol.otlp.limits import Limits, OverLimit

_INT32_MAX: Final = 2**31 - 1
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1

# protobuf reads 100 messages deep, and the value of an event's attribute already stands at the sixth. Of what
# is left an array takes two (ArrayValue, AnyValue), a map three (KeyValueList, KeyValue, AnyValue).
_ROOM: Final = 94
_ROOM_OF_ARRAY: Final = 2
_ROOM_OF_MAP: Final = 3

# How many arrays and maps may still be opened (`Limits.depth`) travels above the room, in one number: the
# functions below call each other for every value.
_ROOM_BITS: Final = 7
_ROOM_MASK: Final = (1 << _ROOM_BITS) - 1
_LEVEL: Final = 1 << _ROOM_BITS

_ARMS: Final = frozenset(
    (
        "stringValue",
        "boolValue",
        "intValue",
        "doubleValue",
        "arrayValue",
        "kvlistValue",
        "bytesValue",
        # An index into a table that only profiles have: known, and treated as absent.
        "stringValueStrindex",
    )
)


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects among the members of an array."""
    return [item for item in value if type(item) is dict] if type(value) is list else []


def text(value: Any) -> str:
    """A text, empty when it is none."""
    return value if type(value) is str else ""


def id_of(value: Any, size_bytes: int) -> bytes:
    """An id in hex or, told apart by its length, in base64; empty when it is neither."""
    if type(value) is not str:
        return b""
    try:
        if len(value) == 2 * size_bytes:
            return bytes.fromhex(value)
        if len(value) == (size_bytes + 2) // 3 * 4:
            return base64.b64decode(value, validate=True)
    except ValueError:
        pass
    return b""


def enum(value: Any, names: Mapping[str, int]) -> int:
    """The number of an enum. Names are not valid OTLP, but an error status read as unset would be a lie."""
    return names[value] if type(value) is str and value in names else unsigned(value, _INT32_MAX)


def unsigned(value: Any, most: int) -> int:
    """A whole number from 0 to `most`, given as number or decimal string; 0 when it is none."""
    number = _integer(value)
    return number if number is not None and 0 <= number <= most else 0


def _integer(value: Any) -> int | None:
    kind = type(value)
    if kind is int:
        return value  # type: ignore[no-any-return]
    if kind is str:
        try:
            return int(value)
        except ValueError:
            return None
    return int(value) if kind is float and value.is_integer() else None


def fill_attributes(source: Any, attributes: Any, room: int) -> None:
    """Fills a repeated KeyValue from an array of pairs, or from an object whose members are the pairs."""
    add = attributes.add
    if type(source) is list:
        for pair in source:
            if type(pair) is dict:
                key = pair.get("key", "")
                if type(key) is str:
                    _fill_value(pair.get("value"), add(key=key).value, room)
    elif type(source) is dict:
        for key, member in source.items():
            _fill_value(member, add(key=key).value, room)


def _fill_value(source: Any, value: AnyValue, room: int) -> None:
    """Fills an AnyValue from its JSON form, or from bare JSON where an exporter left the wrapping out."""
    kind = type(source)
    if kind is dict:
        text = source.get("stringValue")
        if type(text) is str:
            value.string_value = text
        else:
            _fill_from_object(source, value, room)
    elif kind is str:
        value.string_value = source
    elif kind is bool:
        value.bool_value = source
    elif kind is int:
        if _INT64_MIN <= source <= _INT64_MAX:
            value.int_value = source
        else:
            value.string_value = str(source)
    elif kind is float:
        value.double_value = source
    elif kind is list:
        _fill_array(source, value, room)


def _fill_from_object(source: dict[str, Any], value: AnyValue, room: int) -> None:
    for arm, member in source.items():
        if arm in _ARMS and member is not None:
            _fill_arm(arm, member, value, room)
            return
    if not source or not _ARMS.isdisjoint(source):
        value.SetInParent()
        return
    if room & _ROOM_MASK < _ROOM_OF_MAP:
        value.string_value = _as_text(source, room)
        return
    value.kvlist_value.SetInParent()
    fill_attributes(source, value.kvlist_value.values, _inside(room, _ROOM_OF_MAP))


def _fill_array(source: list[Any], value: AnyValue, room: int) -> None:
    if room & _ROOM_MASK < _ROOM_OF_ARRAY:
        value.string_value = _as_text(source, room)
        return
    value.array_value.SetInParent()
    add = value.array_value.values.add
    room = _inside(room, _ROOM_OF_ARRAY)
    for item in source:
        _fill_value(item, add(), room)


def _fill_arm(arm: str, member: Any, value: AnyValue, room: int) -> None:
    """Fills the named arm; what the arm cannot hold is read as bare JSON instead."""
    match arm:
        case "intValue" if (number := _integer(member)) is not None and _INT64_MIN <= number <= _INT64_MAX:
            value.int_value = number
            return
        case "doubleValue" if (double := _double(member)) is not None:
            value.double_value = double
            return
        case "arrayValue" if type(member) is dict:
            items = member.get("values")
            if items is None or type(items) is list:
                _fill_array(items or [], value, room)
                return
        case "kvlistValue" if type(member) is dict and room & _ROOM_MASK >= _ROOM_OF_MAP:
            value.kvlist_value.SetInParent()
            fill_attributes(member.get("values"), value.kvlist_value.values, _inside(room, _ROOM_OF_MAP))
            return
        case "bytesValue" if (data := _bytes(member)) is not None:
            value.bytes_value = data
            return
        case "stringValueStrindex":
            return
    if room & _ROOM_MASK:
        _fill_value(member, value, room - 1)
    else:
        value.string_value = _as_text(member, room)


def room_of(limits: Limits) -> int:
    """The room that the value of an attribute of a span, an event or a link has, in messages and levels."""
    return _ROOM | limits.depth << _ROOM_BITS


def _inside(room: int, messages: int) -> int:
    """The room inside of one more array or map."""
    if room < _LEVEL:
        raise OverLimit("depth")
    return room - messages - _LEVEL


def _as_text(source: Any, room: int) -> str:
    """What is nested deeper than protobuf reads, as its JSON text; within the limit all the same.

    Here a level is told by its brackets, of which a map in its OTLP form has four.
    """
    levels = 4 * (room >> _ROOM_BITS)
    containers: list[Any] = [source]
    while containers := [
        inner for outer in containers for inner in _members(outer) if type(inner) in (dict, list)
    ]:
        levels -= 1
        if levels <= 0:
            raise OverLimit("depth")
    return json.dumps(source, ensure_ascii=False)


def _members(value: Any) -> Iterable[Any]:
    return value.values() if type(value) is dict else value if type(value) is list else ()


def _double(value: Any) -> float | None:
    try:
        return float(value) if type(value) in (float, int, str) else None
    except (ValueError, OverflowError):
        return None


def _bytes(value: Any) -> bytes | None:
    """base64 in either alphabet, padded or not, as proto3 JSON allows."""
    if type(value) is not str:
        return None
    try:
        text = value.replace("-", "+").replace("_", "/")
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return None
