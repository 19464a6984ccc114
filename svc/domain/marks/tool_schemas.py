"""The tools that a model call was offered, and whether arguments break the schema of one of them.

Owns: `tools_offered`, which reads definitions of tools in whatever way they are written, and `ToolSchemas`.
Whoever opens payloads for detectors makes them, the mark `args_break_schema` asks them. Of a schema only what
is certain is kept: leaving a rule out makes a schema weaker, so what breaks the rest breaks the whole. Pure;
never raises over what a client sent, and never quotes a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from svc.domain.spans.values import decoded, text

if TYPE_CHECKING:
    import jsonschema_rs

#: Definitions beyond these bounds say nothing: as many tools, as deep, so many parts of one schema.
MOST_TOOLS: Final = 512
_DEEPEST: Final = 24
_MOST_PARTS: Final = 5_000
#: A name that a sentence quotes is cut here.
_NAME_CHARS: Final = 60

#: A key of a definition that is spelled out: which one, and a field of it.
_SPELLED: Final = re.compile(r"(.*\.[0-9]{1,4})\.(?:tool\.)?([a-z_]+)")
#: Under which keys a tool's schema stands beside its name.
_SCHEMA_KEYS: Final = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")
_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
#: A reference within the schema.
_LOCAL: Final = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
#: What stands in for a value that somebody removed or cut: then nobody knows what was there.
_REMOVED: Final = re.compile(r"redact|mask|truncat|filtered|omitted|\*\*\*|…$|\.\.\.$", re.IGNORECASE)


class _Beyond(Exception):
    """The schema is beyond the bounds."""


@attrs.frozen(eq=False)
class ToolSchemas:
    """The tools of a model call by name, each with its schema as it came, None where nobody knows which.

    `only_functions` is whether the application runs all of them: a tool that the provider runs itself may
    answer without a span.
    """

    schemas: Mapping[str, Any]
    only_functions: bool = True
    # Compiled when a tool is called first: most never are.
    _compiled: dict[str, jsonschema_rs.Validator | None] = attrs.field(factory=dict, repr=False)

    def fault(self, name: str, arguments: str | None) -> str | None:
        """What of the arguments breaks the schema, in words that quote no value; None where nothing surely
        does.
        """
        if arguments is None or name not in self.schemas:
            return None
        if name not in self._compiled:
            self._compiled[name] = _compiled(self.schemas[name])
        schema = self._compiled[name]
        if schema is None or type(value := decoded(arguments)) is not dict:
            return None
        try:
            if schema.is_valid(value):
                return None
            error = next(iter(schema.iter_errors(value)), None)
        except ValueError:
            # A number beyond what the validator reads.
            return None
        return None if error is None or _was_removed(value) else _words(error)


def tools_offered(attributes: Mapping[str, Any], keys: Iterable[str]) -> ToolSchemas | None:
    """The tools defined under these keys: whole definitions, or spelled out as `PREFIX.N.FIELD`. None where
    there are none.
    """
    candidates: list[Any] = []
    spelled: dict[str, dict[str, Any]] = {}
    for key in keys:
        match = _SPELLED.fullmatch(key)
        if match is None:
            candidates += _listed(attributes[key])
        else:
            spelled.setdefault(match[1], {})[match[2]] = attributes[key]
    candidates += [decoded(fields.get("json_schema")) or fields for fields in spelled.values()]
    schemas: dict[str, Any] = {}
    only_functions = len(candidates) <= MOST_TOOLS
    for candidate in candidates[:MOST_TOOLS]:
        for name, schema in _functions(candidate):
            if name is None:
                only_functions = False
            else:
                # Of two tools of one name nobody knows which was meant.
                schemas[name] = None if name in schemas else schema
    return ToolSchemas(schemas, only_functions) if candidates else None


def _listed(value: Any) -> list[Any]:
    opened = decoded(value)
    # Vercel writes each definition as JSON of its own.
    return [decoded(item) for item in opened] if type(opened) is list else [opened]


def _functions(definition: Any) -> Iterator[tuple[str | None, Any]]:
    """The functions of a definition, each with its schema; no name for a tool of another kind."""
    if type(definition) is not dict:
        yield None, None
        return
    for key in ("functionDeclarations", "function_declarations"):
        if type(declared := definition.get(key)) is list:
            for function in declared:
                yield from _functions(function)
            return
    function = inner if type(inner := definition.get("function")) is dict else definition
    name = text(function.get("name"))
    kind = definition.get("type")
    if name is None or (kind is not None and kind not in ("function", "custom", "object")):
        yield None, None
        return
    schema = next((function[key] for key in _SCHEMA_KEYS if function.get(key) is not None), None)
    yield name, decoded(schema)


def _compiled(schema: Any) -> jsonschema_rs.Validator | None:
    # It takes 3 MB, which a service whose traffic names no schemas never needs.
    import jsonschema_rs

    if type(schema) is not dict:
        return None
    try:
        certain = _Weakening(schema).of(schema, _DEEPEST, frozenset())
        return jsonschema_rs.Draft202012Validator(certain, validate_formats=False)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, _Beyond):
        return None


@attrs.define(eq=False)
class _Weakening:
    """Makes of a schema one that allows all that it allows, of rules that every reader understands alike.

    References are replaced by what they refer to, once: a schema that refers to itself says nothing deeper.
    """

    root: Mapping[str, Any]
    room: int = _MOST_PARTS

    def of(self, schema: Any, depth: int, within: frozenset[str]) -> dict[str, Any]:
        """The weaker schema; `within` are the references that led here."""
        self.room -= 1
        if depth == 0 or self.room < 0:
            raise _Beyond
        if type(schema) is not dict:
            return {}
        nullable = schema.get("nullable") is True
        if "$ref" in schema:
            # Older drafts read nothing beside a reference.
            reference = schema["$ref"]
            if nullable or type(reference) is not str or reference in within:
                return {}
            return self.of(self._referred(reference), depth - 1, within | {reference})
        rules = _plain_rules(schema, nullable)
        if type(properties := schema.get("properties")) is dict:
            rules["properties"] = {key: self.of(part, depth - 1, within) for key, part in properties.items()}
        if type(items := schema.get("items")) is dict and "prefixItems" not in schema:
            rules["items"] = self.of(items, depth - 1, within)
        # Without the patterns it would forbid what they allow.
        if "patternProperties" not in schema:
            if (additional := schema.get("additionalProperties")) is False:
                rules["additionalProperties"] = False
            elif type(additional) is dict:
                rules["additionalProperties"] = self.of(additional, depth - 1, within)
        for key, weaker_key in () if nullable else _COMBINED:
            parts = schema.get(key)
            if type(parts) is list and parts and weaker_key not in rules:
                rules[weaker_key] = [self.of(part, depth - 1, within) for part in parts]
        return rules

    def _referred(self, reference: str) -> Any:
        match = _LOCAL.fullmatch(reference)
        if match is None:
            return None
        definitions = self.root.get(match[1])
        return definitions.get(match[2]) if type(definitions) is dict else None


#: Schemas of several, and what they are at least.
_COMBINED: Final = (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf"))


def _plain_rules(schema: Mapping[str, Any], nullable: bool) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    if (types := _types(schema.get("type"))) is not None:
        rules["type"] = sorted(types | {"null"}) if nullable else sorted(types)
    values = schema.get("enum")
    if type(values) is list and values:
        rules["enum"] = [*values, None] if nullable else values
    required = schema.get("required")
    if type(required) is list and all(type(key) is str for key in required):
        rules["required"] = sorted(set(required))
    return rules


def _types(types: Any) -> set[str] | None:
    # Gemini writes them in capitals; what is no type of JSON Schema says nothing.
    names = [types] if type(types) is str else types
    if type(names) is not list or not names or not all(type(name) is str for name in names):
        return None
    lowered = {name.lower() for name in names}
    return lowered if lowered <= _TYPES else None


def _was_removed(value: Any) -> bool:
    """Whether some of the arguments was removed or cut by whoever recorded them."""
    if type(value) is str:
        return _REMOVED.search(value) is not None
    if type(value) is dict:
        return any(_was_removed(part) for part in value.values())
    return type(value) is list and any(_was_removed(part) for part in value)


def _words(error: jsonschema_rs.ValidationError) -> str:
    import jsonschema_rs

    kind = error.kind
    path = ".".join(str(part) for part in error.instance_path)
    where = _quoted(path) if path else "the whole"
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return f"{_quoted(f'{path}.{kind.property}' if path else kind.property)} is required and missing"
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        name = str(kind.unexpected[0])
        return f"{_quoted(f'{path}.{name}' if path else name)} is no property of the tool"
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Type):
        return f"{where} has the wrong type"
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Enum):
        return f"{where} is none of the values allowed"
    return f"{where} has none of the forms allowed"


def _quoted(name: str) -> str:
    return f"`{name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + '…'}`"
