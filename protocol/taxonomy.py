"""The taxonomy file: packs, chains, call sites' intents and output schemas, and failure modes, as its owners
write it.

Shapes and their plain checks; references within the file must hold. Read from YAML or JSON by the command
line, and by whoever else takes a taxonomy; written by the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from protocol.detection import Severity

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=4000)]

FailureScope = Literal["single_call", "chain", "trace"]
Layer = Literal["A", "B", "C"]


class BadTaxonomy(ValueError):
    """The file cannot be used; the text says where and why."""


class Pack(msgspec.Struct, forbid_unknown_fields=True):
    """A set of failure modes that a project engages."""

    id: Id
    name: Text
    version: Text = ""
    description: Text = ""


class Chain(msgspec.Struct, forbid_unknown_fields=True):
    """Call sites that work one after the other."""

    id: Id
    name: Text
    description: Text = ""
    call_site_ids: list[Id] = []


class CallSiteIntent(msgspec.Struct, forbid_unknown_fields=True):
    """What a call site is for, the shape of its work, and the JSON Schema of what it should answer."""

    id: Id
    intent: Text
    shape: Text | None = None
    output_schema: dict[str, Any] | None = None


class FailureMode(msgspec.Struct, forbid_unknown_fields=True):
    """A way to fail: how bad, at which scope, and where."""

    id: Id
    name: Text
    severity: Severity
    scope: FailureScope
    layer: Layer
    description: Text = ""
    call_site_id: Id | None = None
    chain_id: Id | None = None
    pack_id: Id | None = None
    compliance_tags: list[Id] = []


class Taxonomy(msgspec.Struct, forbid_unknown_fields=True):
    """A whole file. What it does not name does not exist after an import."""

    packs: list[Pack] = []
    chains: list[Chain] = []
    call_sites: list[CallSiteIntent] = []
    failure_modes: list[FailureMode] = []


_Entry = TypeVar("_Entry", Pack, Chain, CallSiteIntent, FailureMode)


def read_taxonomy(value: Any) -> Taxonomy:
    """The taxonomy in a parsed document. Raises `BadTaxonomy` naming the offender."""
    try:
        taxonomy = msgspec.convert({} if value is None else value, Taxonomy)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadTaxonomy(str(error)) from None
    check_taxonomy(taxonomy)
    return taxonomy


def check_taxonomy(taxonomy: Taxonomy) -> None:
    """Raises `BadTaxonomy` for an id that is there twice, a reference to nothing, or a text with U+0000."""
    for name in Taxonomy.__struct_fields__:
        _once(name, getattr(taxonomy, name))
    packs, chains = {pack.id for pack in taxonomy.packs}, {chain.id for chain in taxonomy.chains}
    for mode in taxonomy.failure_modes:
        if mode.pack_id is not None and mode.pack_id not in packs:
            raise BadTaxonomy(f"failure mode {mode.id!r} names the pack {mode.pack_id!r}, which is not here")
        if mode.chain_id is not None and mode.chain_id not in chains:
            raise BadTaxonomy(
                f"failure mode {mode.id!r} names the chain {mode.chain_id!r}, which is not here"
            )
    if b"\\u0000" in msgspec.json.encode(taxonomy):
        raise BadTaxonomy("a text holds U+0000, which cannot be stored")


def _once(name: str, entries: Iterable[_Entry]) -> None:
    twice = [id_ for id_, times in Counter(entry.id for entry in entries).items() if times > 1]
    if twice:
        raise BadTaxonomy(f"{name} names {twice[0]!r} more than once")
