"""The taxonomy: imported from a file, whole or not at all, and listed by any of its fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from protocol.taxonomy import BadTaxonomy, read_taxonomy
from svc.commands.taxonomy import HELP, read_file
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.taxonomy import ModeFilter, TaxonomyStore
from svc.store.postgres.database import Database
from tests.store.spans.test_writing import fetch

FILE = HELP[HELP.index("  packs:") :]


async def test_importing_a_file_twice_is_the_same_as_once(store: Database, tmp_path: Path) -> None:
    path = tmp_path / "taxonomy.yaml"
    path.write_text(FILE, encoding="utf-8")
    project = await ProjectStore(store).make_default()
    taxonomies = TaxonomyStore(store)
    await taxonomies.replace(project.id, read_file(path))
    once = await taxonomies.failure_modes(project.id, ModeFilter())
    await taxonomies.replace(project.id, read_file(path))
    assert await taxonomies.failure_modes(project.id, ModeFilter()) == once
    (mode,) = once
    assert (mode["id"], mode["severity"], mode["compliance_tags"]) == ("invented-order", "high", ["accuracy"])
    (intent,) = await fetch(store, "select call_site_id, intent, shape from call_site_intent")
    assert tuple(intent) == ("reply", "Answers the customer", "chat")
    await taxonomies.replace(project.id, read_taxonomy({}))
    assert await taxonomies.failure_modes(project.id, ModeFilter()) == []


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({}, ["b", "c", "a"]),
        ({"severity": "high"}, ["b"]),
        ({"scope": "chain"}, ["c"]),
        ({"layer": "B"}, ["c"]),
        ({"chain_id": "flow"}, ["c"]),
        ({"pack_id": "p"}, ["a"]),
        ({"call_site_id": "reply"}, ["a"]),
        ({"compliance_tag": "gdpr"}, ["b", "c"]),
        ({"compliance_tag": "gdpr", "severity": "high"}, ["b"]),
        ({"pack_id": "other"}, []),
    ],
)
async def test_filters_of_failure_modes(store: Database, asked: dict[str, Any], ids: list[str]) -> None:
    modes = [
        {"id": "a", "severity": "low", "scope": "single_call", "call_site_id": "reply", "pack_id": "p"},
        {"id": "b", "severity": "high", "scope": "trace", "compliance_tags": ["soc2", "gdpr"]},
        {"id": "c", "severity": "medium", "scope": "chain", "chain_id": "flow", "layer": "B"}
        | {"compliance_tags": ["gdpr"]},
    ]
    taxonomy = read_taxonomy(
        {
            "packs": [{"id": "p", "name": "P"}],
            "chains": [{"id": "flow", "name": "Flow"}],
            "failure_modes": [{"name": mode["id"], "layer": "A", **mode} for mode in modes],
        }
    )
    project = await ProjectStore(store).make_default()
    await TaxonomyStore(store).replace(project.id, taxonomy)
    found = await TaxonomyStore(store).failure_modes(project.id, ModeFilter(**asked))
    assert [mode["id"] for mode in found] == ids


@pytest.mark.parametrize(
    ("text", "offender"),
    [
        ("failure_modes: [{id: a}]", "name"),
        ("failure_mods: []", "failure_mods"),
        ("packs: [{id: a, name: x}, {id: a, name: y}]", "'a' more than once"),
        ("failure_modes: [{id: a, name: x, severity: dire, scope: trace, layer: A}]", "dire"),
        ("failure_modes: [{id: a, name: x, severity: low, scope: trace, layer: A, pack_id: p}]", "pack 'p'"),
        (
            "failure_modes: [{id: a, name: x, severity: low, scope: trace, layer: A, chain_id: c}]",
            "chain 'c'",
        ),
        ('packs: [{id: a, name: "\\0"}]', "U+0000"),
        ("[1, 2]", "object"),
        ("{", "taxonomy.yaml"),
        ("!!python/object/apply:os.system [true]", "taxonomy.yaml"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_offender(
    tmp_path: Path, text: str, offender: str
) -> None:
    path = tmp_path / "taxonomy.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadTaxonomy, match=re.escape(offender)):
        read_file(path)


def test_json_is_a_taxonomy_file_as_well(tmp_path: Path) -> None:
    path = tmp_path / "taxonomy.json"
    path.write_text('{"packs": [{"id": "p", "name": "P"}]}')
    assert [pack.id for pack in read_file(path).packs] == ["p"]
