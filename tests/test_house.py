"""The rules of the house: who may import whom, how long things may be, what must be documented."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.readme import PAGES, tables, whole

ROOT = Path(__file__).parent.parent

#: What every room of the store may import, and what those above its two lowest rooms may.
STORE = {"protocol", "svc.domain"}
BELOW = {"svc.store.postgres", "svc.store.aggregates", "svc.store.accounts"}
SQL = {"attrs", "msgspec", "trio", "trio_asyncio", "asyncpg", "bcrypt", "structlog"}

#: Rooms from the narrowest to the widest: which of our packages each may import, and which others. A room
#: inside another is a room of its own. None: any other package.
ROOMS: dict[str, tuple[set[str], set[str] | None]] = {
    "protocol": (
        {"protocol"},
        {"attrs", "msgspec", "betterproto2", "opentelemetry", "google", "zstandard", "cramjam", "lz4"},
    ),
    "actors": ({"protocol", "actors"}, {"attrs", "msgspec", "trio"}),
    "svc/domain": (
        {"protocol", "svc.domain"},
        {"attrs", "jsonschema_rs", "msgspec", "numpy", "re2", "xxhash", "yaml", "zstandard", "genai_prices"},
    ),
    "svc/store/postgres": (STORE | {"svc.store.postgres"}, SQL),
    "svc/store/aggregates": (STORE | {"svc.store.postgres", "svc.store.aggregates"}, SQL),
    "svc/store/accounts": (STORE | {"svc.store.postgres", "svc.store.accounts"}, SQL),
    "svc/store/replicas": (STORE | {"svc.store.postgres", "svc.store.replicas"}, SQL),
    "svc/store/spans": (STORE | BELOW | {"svc.store.spans"}, SQL),
    "svc/store/alerts": (STORE | BELOW | {"svc.store.alerts"}, SQL),
    # What detectors count they read from stored traces; of what becomes of a case, rules of alerts hear in
    # the same transaction.
    "svc/store/detection": (
        STORE | BELOW | {"svc.store.spans", "svc.store.alerts", "svc.store.detection"},
        SQL,
    ),
    # A run of an agent ends with a ruling or a report.
    "svc/store/agents": (STORE | BELOW | {"svc.store.detection", "svc.store.agents"}, SQL),
    # What a finding cites outlives its day, so the sweep asks which findings are over.
    "svc/store/retention": (STORE | BELOW | {"svc.store.retention", "svc.store.detection"}, SQL),
    # A whole database, out and in.
    "svc/store/backup": (STORE | BELOW | {"svc.store.spans", "svc.store.backup"}, SQL),
    "svc/store/reads": ({"protocol", "svc.domain", "svc.store"}, SQL),
    "svc/outside": (
        {"protocol", "svc.outside"},
        {
            *("attrs", "msgspec", "trio", "confluent_kafka", "httpx2", "httpcore2", "joserfc"),
            # The client of certificate authorities, and what speaks in its signatures.
            *("acme", "josepy", "requests", "cryptography"),
        },
    ),
    "svc/config": ({"protocol", "svc.config"}, {"attrs", "environ"}),
    "svc/secrets": ({"protocol", "svc.config", "svc.secrets"}, {"attrs", "cryptography", "trio"}),
    # A backup is the database, and beside it secrets and the spool, whose folders the settings name.
    "svc/backup": (
        {"protocol", "svc.domain", "svc.store", "svc.config", "svc.secrets", "svc.backup"},
        {"attrs", "msgspec", "trio", "zstandard"},
    ),
    "svc/runtime": ({"svc.runtime"}, {"trio", "trio_asyncio", "structlog"}),
    # A decoder process keeps an actor of its own.
    "svc/ingest": (
        {"protocol", "actors", "svc.domain", "svc.store", "svc.runtime", "svc.ingest"},
        {"attrs", "msgspec", "trio"},
    ),
    # Files of exports and the journal of a run are read and written here; what fetches is handed in.
    "svc/importers": (
        {"protocol", "svc.domain", "svc.importers"},
        {"attrs", "msgspec", "trio", "opentelemetry", "pyarrow"},
    ),
    # The detecting process keeps actors of its own.
    "svc/detecting": (
        {"protocol", "actors", "svc.domain", "svc.store", "svc.outside", "svc.runtime", "svc.detecting"},
        {"attrs", "trio"},
    ),
    # A process of its own, perhaps on another machine. It checks answers by the rules that the service has.
    "svc/runner": (
        {"protocol", "svc.domain", "svc.outside", "svc.runtime", "svc.runner"},
        {"attrs", "msgspec", "trio", "httpx2", "httpcore2", "hypercorn"},
    ),
    "svc/front": (
        {"protocol", "actors", "svc.domain", "svc.store", "svc.front"},
        {
            *("attrs", "msgspec", "trio", "trio_asyncio", "quart", "quart_trio", "werkzeug", "hypercorn"),
            *("grpclib", "h2", "multidict", "opentelemetry", "prometheus_client", "cryptography"),
        },
    ),
    # As the front, whose callers and forms it shares.
    "svc/web": (
        {"protocol", "svc.domain", "svc.store", "svc.front.auth", "svc.front.api", "svc.web"},
        {"attrs", "msgspec", "trio", "quart", "quart_trio", "werkzeug", "jinja2", "markupsafe"},
    ),
    "svc/commands": (
        {
            *("protocol", "svc.domain", "svc.store", "svc.config", "svc.secrets", "svc.runtime"),
            *("svc.ingest", "svc.importers", "svc.backup", "svc.runner"),
            *("svc.wiring", "svc.commands", "svc.serve"),
        },
        None,
    ),
    # Knows every room but the commands, which know it.
    "svc/wiring": (
        {
            *("protocol", "actors", "svc.domain", "svc.store", "svc.outside", "svc.ingest", "svc.front"),
            *(
                "svc.web",
                "svc.config",
                "svc.detecting",
                "svc.importers",
                "svc.runner",
                "svc.secrets",
                "svc.runtime",
                "svc.backup",
            ),
            "svc.wiring",
        },
        None,
    ),
}

#: trio-asyncio is the border to another event loop; three files may stand on it.
ASYNCIO_BORDER = {"svc/runtime/asyncio_loop.py", "svc/store/postgres/database.py", "svc/front/otlp/grpc.py"}


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """Every file of ours with what it says; read once, since that takes longer than any law."""
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for room in ("protocol", "actors", "svc")
        for path in sorted((ROOT / room).rglob("*.py"))
    ]


@cache
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


def room_of(path: str) -> str | None:
    """The innermost room that a file stands in."""
    return max((room for room in ROOMS if path.startswith(room + "/")), key=len, default=None)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_the_design_allows(room: str) -> None:
    ours, others = ROOMS[room]
    for path, tree in modules():
        if room_of(path) != room:
            continue
        for name in imported(tree):
            top = name.partition(".")[0]
            if top in ("protocol", "actors", "svc"):
                allowed = any(name == o or name.startswith(o + ".") for o in ours)
            else:
                allowed = others is None or standard(name) or top in others
            assert allowed, f"{path} imports {name}"


def test_every_file_stands_in_a_room() -> None:
    homeless = {path for path, _ in modules() if room_of(path) is None}
    assert homeless == {"svc/__init__.py", "svc/__main__.py", "svc/serve.py", "svc/store/__init__.py"}


def test_nothing_is_imported_in_a_circle() -> None:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    names = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path, _ in modules()
    }
    trees = {path: tree for path, tree in modules()}
    for name, path in names.items():
        for node in trees[path].body:
            if isinstance(node, ast.ImportFrom) and node.module in trees:
                whole = {f"{node.module}.{alias.name}" for alias in node.names} & trees.keys()
                sorter.add(name, *((whole or {node.module}) - {name}))
    sorter.prepare()


def test_no_public_class_name_stands_for_two_things() -> None:
    homes: dict[str, list[str]] = {}
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


#: Functions that are longer than 60 lines, each with its reason.
LONG_FUNCTIONS = {
    "svc/domain/mapping.py:map_span": "a span's fields one after the other; every step is a line or two",
    "protocol/otlp/plain_spans.py:plain_span": "one loop over fields, where calls would cost most",
    "svc/commands/demo.py:_support_agent": "the text of one sample trace",
}


def test_a_long_function_has_a_reason() -> None:
    long = {
        f"{path}:{node.name}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > 60
    }
    assert long == LONG_FUNCTIONS.keys()


def test_only_the_store_speaks_to_postgresql() -> None:
    users = {path for path, tree in modules() if any(n.startswith("asyncpg") for n in imported(tree))}
    assert all(path.startswith("svc/store/") for path in users)


def test_rows_go_to_postgresql_in_one_statement_or_by_copy() -> None:
    """A cancelled `executemany` of asyncpg 0.32 waits for ever when the server has stopped to read."""
    found = {path for path, tree in modules() for node in ast.walk(tree) if _name(node) == "executemany"}
    # Those are SQLite's.
    assert found == {"svc/importers/journal.py", "actors/spool/disk.py"}


def _name(node: ast.AST) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else None


def test_a_process_of_ours_is_started_in_one_way() -> None:
    users = {path for path, tree in modules() for node in ast.walk(tree) if _name(node) == "executable"}
    assert users == {"svc/runtime/child.py"}


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
    "svc/config/table.py": "one table of settings",
    "svc/store/postgres/embedded/cluster.py": "the folders and programs of the embedded server",
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


@pytest.mark.parametrize("mark", tables())
def test_a_page_holds_the_table(mark: str) -> None:
    assert f"<!-- {mark} -->\n{tables()[mark]}\n" in whole(), "run `python -m tests.readme` to renew it"


def test_the_readme_is_a_first_screen_and_no_manual() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) < 12_000


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([\w./-]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), (page, link)
