"""What a validation error says to who sent it: msgspec's sentence, and what would have been right.

Called by whoever reads what people and programs send: bodies, queries, forms, arguments of tools, parameters
of rules. Pure.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from protocol.refusals import HALF_CHARACTER

#: Where an error is, as msgspec writes it: `$.params.filters[...]`, or the key of an object.
_PATH: Final = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`$")
_STEP: Final = re.compile(r"\.(?P<field>[^.\[]+)|\[[^\]]*\]")
#: Names and values that are told at most.
_MOST: Final = 40


#: JSON as far as no escape in it is half of a character. Possessive, so that it is read once.
_WHOLE: Final = re.compile(
    rb"(?:[^\\]|\\[^u]|\\u(?!d[89a-f])|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})*+", re.S | re.I
)
_HALF: Final = re.compile(rb"\\ud[89a-f][0-9a-f]{2}", re.I)


def unread_text(error: Exception, body: bytes) -> str:
    """Why a body is no JSON, as its reader says it; where that misleads, in words of ours.

    Of a surrogate without its pair msgspec says that the body was cut off, or what it knows of UTF-16.
    """
    text = str(error)
    if text != "Input data was truncated" and "surrogate" not in text:
        return text
    whole = _WHOLE.match(body)
    half = None if whole is None else _HALF.match(body, whole.end())
    return text if half is None else HALF_CHARACTER.format(escape=half[0].decode())


def validation_text(error: msgspec.ValidationError, type_: Any) -> str:
    """The error with the values, or the fields, that there are at its place in the type."""
    text = str(error)
    if text.startswith("Invalid enum value"):
        right, lead = _values(_at(text, type_)), "one of"
    elif text.startswith("Object contains unknown field"):
        right, lead = _fields(_at(text, type_)), "it takes"
    else:
        return text
    if right is None or len(right) > _MOST:
        return text
    return f"{text}; {lead}: {', '.join(right) or 'nothing'}"


def _at(text: str, type_: Any) -> list[Any]:
    """The types that are possible at the place of the error."""
    from msgspec import inspect

    types = _unwrapped(inspect.type_info(type_))
    path = _PATH.search(text)
    for step in _STEP.finditer(path["path"] if path is not None else ""):
        inner: list[Any] = []
        for outer in types:
            if step["field"] is None:
                inner += _items(outer)
            elif isinstance(outer, inspect.StructType):
                inner += [field.type for field in outer.fields if field.encode_name == step["field"]]
        types = [single for several in inner for single in _unwrapped(several)]
    return types


def _unwrapped(type_: Any) -> list[Any]:
    """The alternatives of a union, without what is said beside a type."""
    from msgspec import inspect

    if isinstance(type_, inspect.Metadata):
        return _unwrapped(type_.type)
    if isinstance(type_, inspect.UnionType):
        return [single for several in type_.types for single in _unwrapped(several)]
    return [type_]


def _items(type_: Any) -> list[Any]:
    """The types of what stands in brackets below one."""
    names = ("item_type", "value_type", "key_type")
    return [getattr(type_, name) for name in names if hasattr(type_, name)] + list(
        getattr(type_, "item_types", ())
    )


def _values(types: list[Any]) -> list[str] | None:
    from msgspec import inspect

    values = [str(value) for enum in types if isinstance(enum, inspect.LiteralType) for value in enum.values]
    return values or None


def _fields(types: list[Any]) -> list[str] | None:
    from msgspec import inspect

    structs = [struct for struct in types if isinstance(struct, inspect.StructType)]
    # A tagged union is told apart by msgspec alone.
    return [field.encode_name for field in structs[0].fields] if len(structs) == 1 else None
