"""The rules of the house: who may import whom, how long things may be, what must be documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from svc import config
from svc.front import tools
from tests.readme import dialects_table

ROOT = Path(__file__).parent.parent
STDLIB_AND_ATTRS = {"attrs"}

#: Rooms from the narrowest to the widest: which of our packages each may import, and which others.
ROOMS: dict[str, tuple[set[str], set[str]]] = {
    "protocol": (
        {"protocol"},
        {"attrs", "msgspec", "betterproto2", "opentelemetry", "google", "zstandard"},
    ),
    "actors": ({"protocol", "actors"}, {"attrs", "trio"}),
    "svc/domain": (
        {"protocol", "svc.domain"},
        {"attrs", "jsonschema_rs", "msgspec", "numpy", "zstandard", "genai_prices"},
    ),
    "svc/store": (
        {"protocol", "svc.domain", "svc.store"},
        {"attrs", "msgspec", "trio", "trio_asyncio", "asyncpg", "bcrypt", "structlog"},
    ),
    "svc/outside": (
        {"protocol", "svc.outside"},
        {"attrs", "msgspec", "trio", "confluent_kafka", "httpx2", "joserfc"},
    ),
}

#: trio-asyncio is the border to another event loop; three files may stand on it.
ASYNCIO_BORDER = {"svc/open_store.py", "svc/store/database.py", "svc/front/otlp_grpc.py"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for room in ("protocol", "actors", "svc"):
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(node.module or "")
    return names


def standard(name: str) -> bool:
    import sys

    return name.partition(".")[0] in sys.stdlib_module_names


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_the_design_allows(room: str) -> None:
    ours, others = ROOMS[room]
    for path, tree in modules():
        if not path.startswith(room + "/"):
            continue
        for name in imported(tree):
            top = name.partition(".")[0]
            allowed = (
                any(name == package or name.startswith(package + ".") for package in ours)
                if top in ("protocol", "actors", "svc")
                else standard(name) or top in others
            )
            assert allowed, f"{path} imports {name}"


def test_only_the_store_speaks_to_postgresql() -> None:
    users = {path for path, tree in modules() if any(n.startswith("asyncpg") for n in imported(tree))}
    assert all(path.startswith("svc/store/") for path in users)


def test_trio_asyncio_is_imported_at_the_border_only() -> None:
    users = {path for path, tree in modules() if any(n.startswith("trio_asyncio") for n in imported(tree))}
    assert users <= ASYNCIO_BORDER


def test_every_module_says_what_it_owns() -> None:
    silent = [path for path, tree in modules() if not ast.get_docstring(tree)]
    assert silent == []


def test_every_public_thing_is_described() -> None:
    silent = []
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name.startswith("_") or any(
                    isinstance(base, ast.Name) and base.id == "Protocol"
                    for base in getattr(node, "bases", [])
                ):
                    continue
                if not ast.get_docstring(node):
                    silent.append(f"{path}:{node.name}")
    assert silent == []


#: Files that are longer than 400 lines, each with its reason.
LONG_FILES = {
    "svc/config.py": "one table of settings with its types and checks",
    "svc/store/cluster.py": "everything about the folders and programs of the embedded server",
}


def test_a_long_file_has_a_reason() -> None:
    long = {
        path for path, _ in modules() if len((ROOT / path).read_text(encoding="utf-8").splitlines()) > 400
    }
    assert long <= LONG_FILES.keys()


def test_the_repository_names_no_registry_and_no_machine() -> None:
    import subprocess

    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    forbidden = re.compile(
        "py" + r"pi\.org|files\.pythonhosted|registry\.npm" + r"js|/wo" + "rk/|/ro" + r"ot/\.pyenv"
    )
    guilty = [
        name
        for name in files
        if (ROOT / name).is_file() and forbidden.search((ROOT / name).read_text("utf-8", "ignore"))
    ]
    assert guilty == []


def test_the_readme_holds_the_table_of_dialects() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert dialects_table() in readme, "run `python -m tests.readme` to renew it"


def test_the_readme_holds_the_table_of_tools() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert tools.markdown_table() in readme, "run `python -m tests.readme` to renew it"


def test_the_readme_holds_the_settings_table() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert config.markdown_table() in readme, "run `python -m tests.readme` to renew it"
