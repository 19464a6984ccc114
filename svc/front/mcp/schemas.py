"""Schemas of arguments as agents read them, and arguments as they are meant. Pure.

Called by `svc.front.mcp.tools`: a schema is whole in itself, since some clients follow no references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from protocol.text import clean


def schema_of(type_: type[Struct]) -> dict[str, Any]:
    """The JSON Schema of a class, whole in itself, as agents read it."""
    _, components = msgspec.json.schema_components([type_], ref_template="{name}")
    schema: dict[str, Any] = _plain(components[type_.__name__], components)
    # The sentence on the class is for readers of the code; the tool has its own.
    del schema["description"]
    return schema


def _plain(schema: Any, components: Mapping[str, Any]) -> Any:
    """The schema without references, titles and empty lists."""
    if isinstance(schema, list):
        return [_plain(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if reference is not None:
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        return _plain({**components[reference], **beside}, components)
    plain = {
        name: _properties(value, components) if name == "properties" else _plain(value, components)
        for name, value in schema.items()
        if name != "title" and value != []
    }
    return {"type": "string", **plain} if "enum" in plain else plain


def _properties(properties: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of each property, whatever its name."""
    return {name: _plain(schema, components) for name, schema in properties.items()}


def tidied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as they are meant: null and blank texts are absent, 20.0 is 20, U+0000 is U+FFFD."""
    tidy = {clean(name): _tidy(value) for name, value in arguments.items()}
    present = {name: value for name, value in tidy.items() if not _blank(value)}
    if isinstance(present.get("range"), dict):
        present["range"] = {name: value for name, value in present["range"].items() if not _blank(value)}
    return present


def _tidy(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {clean(name): _tidy(item) for name, item in value.items()}
        case list():
            return [_tidy(item) for item in value]
        case _:
            return value


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
