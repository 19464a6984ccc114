"""A taxonomy as its owners write it, in YAML or JSON: reading it, and what it changes of another.

Called by the command line and by the page of the taxonomy. Whoever calls bounds the text. A text of a
stranger may hold no aliases: a few lines of them stand for more than any memory holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import attrs
import msgspec
import yaml

from protocol.taxonomy import BadTaxonomy, Taxonomy, read_taxonomy
from svc.domain.output_schema import check_output_schemas

#: The lists of a file, as people call them.
KINDS: Final = {
    "failure_modes": "failure mode",
    "call_sites": "call site",
    "chains": "chain",
    "packs": "pack",
}

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Did = Literal["added", "changed", "removed"]


@attrs.frozen
class TaxonomyChange:
    """One entry that a taxonomy has and another has not, or has otherwise."""

    kind: str
    id: str
    did: Did
    #: The names of the fields that differ, of a changed entry.
    fields: tuple[str, ...] = ()


def taxonomy_of(raw: bytes | str, *, aliases: bool) -> Taxonomy:
    """The taxonomy in a text, checked whole. Raises `BadTaxonomy`."""
    try:
        taxonomy = read_taxonomy(_value(raw, aliases=aliases))
        check_output_schemas(taxonomy.call_sites)
    except BadTaxonomy:
        raise
    except (yaml.YAMLError, UnicodeError, RecursionError, ValueError) as error:
        raise BadTaxonomy(str(error)) from None
    return taxonomy


def _value(raw: bytes | str, *, aliases: bool) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        pass
    if not aliases and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(raw, _Loader)):
        raise BadTaxonomy("aliases (*name) are not read here; write each entry out")
    return yaml.load(raw, _Loader)  # noqa: S506 # a safe loader, whichever there is


def changes_of(before: Taxonomy, after: Taxonomy) -> Iterator[TaxonomyChange]:
    """What `after` changes of `before`, by kind and id."""
    for name, kind in KINDS.items():
        old = {entry.id: entry for entry in getattr(before, name)}
        new = {entry.id: entry for entry in getattr(after, name)}
        for id_ in sorted(old.keys() | new.keys()):
            if id_ not in new:
                yield TaxonomyChange(kind, id_, "removed")
            elif id_ not in old:
                yield TaxonomyChange(kind, id_, "added")
            elif old[id_] != new[id_]:
                names = new[id_].__struct_fields__
                differ = tuple(f for f in names if getattr(old[id_], f) != getattr(new[id_], f))
                yield TaxonomyChange(kind, id_, "changed", differ)
