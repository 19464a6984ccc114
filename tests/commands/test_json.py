"""Laws of `--json`: commands that answer offer it, and nothing else is on standard output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc.commands.completable import levels
from tests.commands.test_command_line import said
from tests.service import Service, running
from tests.wire import request, span

#: Commands without it, and why.
WITHOUT = {
    "serve": "serves",
    "sandbox-runner": "serves",
    "restart": "says when the service is ready again",
    "completion": "prints a script",
    "export": "prints the rows themselves, as JSON lines",
    "demo": "shows somebody around",
    "dead-letters": "its rows are to be had as JSON over REST",
    "alerts": "lists are JSON; what changes something says so in a line",
}


def test_every_command_that_answers_offers_json() -> None:
    offering = {level.path for level in levels() if any("--json" in option.flags for option in level.options)}
    rest = [
        level.path for level in levels() if level.path and not level.deeper and level.path not in offering
    ]
    assert [path for path in rest if path.split()[0] not in WITHOUT] == []
    assert {path.split()[0] for path in rest} == WITHOUT.keys()


@pytest.fixture(scope="module")
def here() -> Iterator[Service]:
    """A service with a few spans, and a passphrase for its backups."""
    with running(SVC_BACKUP_PASSPHRASE="sixteen letters and more") as service:
        assert (
            service.send(request(*(span(name=f"step {n}") for n in range(3))).SerializeToString()).status_code
            == 200
        )
        service.wait_for_spans(3)
        yield service


def told(service: Service, *arguments: str | Path) -> Any:
    """What a command prints with `--json`, read as JSON from its first letter to its last."""
    return json.loads(service.command(*map(str, arguments), "--json"))


@pytest.mark.release
def test_a_backup_is_made_listed_verified_and_pruned_in_json(here: Service, open_folder: Path) -> None:
    folder = open_folder / "backups"
    made = told(here, "backup", folder)
    assert made["rows"] > 3
    assert made["new_files"] > 0 == made["unchanged_files"]
    assert made["bytes"] >= made["new_bytes"] > 0
    (listed,) = told(here, "backup", "list", folder)
    assert listed == {name: made[name] for name in listed}
    assert told(here, "backup", "verify", folder, "--digests")["good"] is True
    assert told(here, "backup", "verify", folder)["spans"] == 3
    assert told(here, "backup", "prune", folder, "--keep", "1") == {"pruned": 0, "files": 0, "freed_bytes": 0}
    elsewhere = attrs.evolve(here, env={**here.env, "SVC_DATA_DIR": str(open_folder / "restored")})
    restored = told(elsewhere, "restore", folder)
    assert (restored["backup"], restored["rows"]) == (made["backup"], made["rows"])
    assert restored["messages_read_again"] is None


def test_people_are_told_how_large_a_backup_is(here: Service, open_folder: Path) -> None:
    first = here.command("backup", str(open_folder / "backups")).splitlines()[0]
    assert first.endswith("B")
    assert "function" not in first


def test_a_rework_is_told_in_json(here: Service) -> None:
    preview = told(here, "reprice")
    assert (preview["applied"], preview["spans"], preview["changed_spans"]) == (False, 3, 0)
    assert preview["before"] == preview["after"]
    assert isinstance(preview["before"]["cost"], float)
    assert told(here, "remap", "--apply")["applied"] is True


def test_sealed_values_are_told_in_json(here: Service) -> None:
    assert told(here, "secrets", "list") == {"values": [], "resealed": 0, "lost": 0}
    assert told(here, "secrets", "rotate") == {"values": [], "resealed": 0, "lost": 0}


def test_a_bundle_names_its_file_and_parts(here: Service, tmp_path: Path) -> None:
    bundle = told(here, "support-bundle", tmp_path / "bundle.tar.gz")
    assert Path(bundle["file"]).is_file()
    assert {"settings.json", "versions.json", "database.json"} <= set(bundle["parts"])


def test_what_is_moved_in_is_told_in_json(here: Service, tmp_path: Path) -> None:
    exported = tmp_path / "spans.jsonl"
    exported.write_text(here.command("export", "spans"))
    dry = told(here, "import", "export", exported, "--dry-run")
    assert (dry["dry_run"], dry["given"]["spans"], dry["now_here"]) == (True, 3, None)
    moved = told(here, "import", "export", exported)
    assert (moved["moved"]["known"], moved["now_here"]["spans"], moved["missing"]) == (3, 3, 0)
    taxonomy = tmp_path / "taxonomy.yaml"
    taxonomy.write_text("packs: [{id: support, name: Support desk}]")
    assert told(here, "taxonomy", "import", taxonomy) == {
        "project": "default/default",
        "packs": 1,
        "chains": 0,
        "call_sites": 0,
        "failure_modes": 0,
    }


def test_a_folder_to_start_from_is_told_in_json(tmp_path: Path) -> None:
    code, text, errors = said("init", str(tmp_path / "traces"), "--json")
    assert (code, errors) == (0, "")
    made = json.loads(text)
    assert all(Path(file).is_file() for file in made["files"])
    assert made["next"][0] == "docker compose up -d"
