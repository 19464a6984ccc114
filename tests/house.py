"""The laws of the house, each a function from a tree of files to what breaks it, empty where it holds.

`tests/test_house.py` holds them of this repository, and shows that each is broken by what it forbids. Nothing
here imports the product: it is read as text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import attrs

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
    # Feedback comes with spans too.
    "svc/store/feedback": (STORE | BELOW | {"svc.store.feedback"}, SQL),
    "svc/store/spans": (STORE | BELOW | {"svc.store.feedback", "svc.store.spans"}, SQL),
    "svc/store/alerts": (STORE | BELOW | {"svc.store.alerts"}, SQL),
    # What detectors count they read from stored traces; of what becomes of a case, rules of alerts hear in
    # the same transaction.
    "svc/store/detection": (
        STORE | BELOW | {"svc.store.spans", "svc.store.alerts", "svc.store.detection"},
        SQL,
    ),
    # A run of an agent ends with a ruling or a report.
    "svc/store/agents": (STORE | BELOW | {"svc.store.detection", "svc.store.agents"}, SQL),
    # What a finding cites outlives its day, so the sweep asks which findings are over; what is erased is
    # looked for in payloads.
    "svc/store/retention": (
        STORE | BELOW | {"svc.store.retention", "svc.store.detection", "svc.store.spans"},
        SQL,
    ),
    # A whole database, out and in.
    "svc/store/backup": (STORE | BELOW | {"svc.store.spans", "svc.store.backup"}, SQL),
    "svc/store/reads": ({"protocol", "svc.domain", "svc.store"}, SQL),
    "svc/outside": (
        {"protocol", "svc.outside"},
        {
            *("attrs", "msgspec", "trio", "confluent_kafka", "httpx2", "httpcore2", "joserfc"),
            # The client of certificate authorities, and what speaks in its signatures.
            *("acme", "josepy", "requests", "cryptography"),
            # The client of object stores.
            "obstore",
        },
    ),
    "svc/config": ({"protocol", "svc.config"}, {"attrs", "environ"}),
    "svc/secrets": ({"protocol", "svc.config", "svc.secrets"}, {"attrs", "cryptography", "trio"}),
    # A backup is the database, and beside it secrets and the spool, whose folders the settings name.
    "svc/backup": (
        {"protocol", "svc.domain", "svc.store", "svc.config", "svc.secrets", "svc.backup"},
        {"attrs", "msgspec", "trio", "zstandard"},
    ),
    "svc/runtime": ({"svc.runtime"}, {"attrs", "trio", "trio_asyncio", "structlog"}),
    # A decoder process keeps an actor of its own.
    "svc/ingest": (
        {"protocol", "actors", "svc.domain", "svc.store", "svc.runtime", "svc.ingest"},
        {"attrs", "msgspec", "trio"},
    ),
    # Files of exports and the journal of a run are read and written here; what fetches is handed in.
    "svc/importers": (
        {"protocol", "svc.domain", "svc.importers"},
        {"attrs", "msgspec", "trio", "opentelemetry", "pyarrow", "zstandard"},
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
            *("grpclib", "h2", "hpack", "hyperframe", "priority", "multidict"),
            *("opentelemetry", "prometheus_client"),
            "cryptography",
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
            *("svc.application", "svc.wiring", "svc.commands", "svc.serve"),
            # Who listens on a port of this machine.
            "svc.front.server.listening",
        },
        None,
    ),
    # What is done for people beyond one request: below both fronts, which know it by ports.
    "svc/application": (
        {
            *("protocol", "actors", "svc.domain", "svc.store", "svc.outside", "svc.config", "svc.secrets"),
            *("svc.backup", "svc.runtime", "svc.ingest", "svc.importers", "svc.application"),
        },
        {"attrs", "msgspec", "trio"},
    ),
    # Knows every room but the commands, which know it.
    "svc/wiring": (
        {
            *("protocol", "actors", "svc.domain", "svc.store", "svc.outside", "svc.ingest", "svc.front"),
            *(
                "svc.application",
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


#: Functions that are longer than 60 lines, each with its reason.
LONG_FUNCTIONS = {
    "svc/domain/intake/mapping.py:map_span": "a span's fields one after the other; each is a line or two",
    "protocol/otlp/plain_spans.py:plain_span": "one loop over fields, where calls would cost most",
    "svc/commands/demo_sample.py:_parcel_agent": "the text of one sample trace",
}


#: Files that are longer than 400 lines, each with its reason.
LONG_FILES = {
    "protocol/refusals.py": "one table of what clients are told",
    "svc/config/table.py": "one table of settings",
    "svc/store/postgres/embedded/cluster.py": "the folders and programs of the embedded server",
}


#: Rooms whose work goes in stages: each stage may import those before it, none behind it. A file that stands
#: loose in such a room is before all stages, unless it is named as one.
STAGES: dict[str, tuple[str, ...]] = {
    "svc/store/detection": ("counting", "cases", "rca", "judging"),
    "svc/domain/detect": ("engine", "secrets", "detectors", "findings"),
    "svc/store/reads": (
        *("questions", "traces", "one_trace", "usage", "alerts", "exporting.py", "plans.py"),
    ),
    "svc/web": (
        *("shell", "feedback", "connect", "account", "detectors", "cases", "messages", "traces", "overview"),
        *("sessions", "alerts", "settings", "table.py"),
    ),
}
#: Rooms in which a folder has at most so many loose files, and the folder that is a table of equals instead.
ROOMY = ("svc/domain", *(home for home in STAGES if not home.startswith("svc/domain")))
ROOMY_FILES = 15
EQUALS = {"svc/domain/dialects"}
#: Stages that have nothing to do with one before them.
SHUT = {("svc/domain/detect", "secrets", "engine"), ("svc/domain/detect", "findings", "secrets")}


#: Who may send many rows in one call: both speak to SQLite.
EXECUTEMANY = {"svc/importers/journal.py", "actors/spool/disk.py"}

#: Files above the rooms.
ABOVE = {"svc/__init__.py", "svc/__main__.py", "svc/serve.py", "svc/store/__init__.py"}


@attrs.frozen(slots=False)
class Tree:
    """The product's files below a folder; each is read once."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """Every file of ours, by its path, parsed."""
        return {
            path.relative_to(self.root).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
            for room in ("protocol", "actors", "svc")
            for path in sorted((self.root / room).rglob("*.py"))
        }

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """By path: the names of the modules that it imports anywhere."""
        return {path: set(_imports(tree)) for path, tree in self.modules.items()}

    def text(self, path: str) -> str:
        """What stands in a file."""
        return (self.root / path).read_text(encoding="utf-8", errors="ignore")


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def _standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def room_of(path: str) -> str | None:
    """The innermost room that a file stands in."""
    return max((room for room in ROOMS if path.startswith(room + "/")), key=len, default=None)


def _allowed(room: str, name: str) -> bool:
    ours, others = ROOMS[room]
    top = name.partition(".")[0]
    if top in ("protocol", "actors", "svc"):
        return any(name == one or name.startswith(one + ".") for one in ours)
    return others is None or _standard(name) or top in others


def forbidden_imports(tree: Tree) -> list[str]:
    """A room imports only what the design allows."""
    return [
        f"{path} imports {name}"
        for path, names in tree.imports.items()
        if (room := room_of(path)) is not None
        for name in sorted(names)
        if not _allowed(room, name)
    ]


def homeless_files(tree: Tree) -> list[str]:
    """Every file stands in a room."""
    return [path for path in tree.modules if room_of(path) is None and path not in ABOVE]


def import_edges(tree: Tree) -> dict[str, set[str]]:
    """By module: the modules of ours that it imports while it is imported itself, or for types."""
    names = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in tree.modules
    }
    return {
        name: {target for target in _at_import(tree.modules[path].body, names.keys()) if target != name}
        for name, path in names.items()
    }


def _at_import(body: list[ast.stmt], modules: object) -> Iterator[str]:
    assert hasattr(modules, "__contains__")
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                target = f"{node.module}.{alias.name}"
                if target in modules:
                    yield target
                elif node.module in modules:
                    yield str(node.module)
        elif isinstance(node, ast.Try | ast.With):
            yield from _at_import(node.body, modules)
        elif isinstance(node, ast.If):
            # What only a type checker reads is read by people, too.
            yield from _at_import(node.body, modules)
            yield from _at_import(node.orelse, modules)


def import_circles(tree: Tree) -> list[str]:
    """Nothing is imported in a circle, for its types neither."""
    try:
        TopologicalSorter(import_edges(tree)).prepare()
    except CycleError as circle:
        return [" imports ".join(reversed(circle.args[1]))]
    return []


def stages_backward(tree: Tree) -> list[str]:
    """A stage imports no stage behind it, and every folder of a room in stages is one."""
    faults = []
    for home, stages in STAGES.items():
        package = home.replace("/", ".")
        for path, module in tree.modules.items():
            if not path.startswith(home + "/"):
                continue
            stage, inside, _ = path.removeprefix(home + "/").partition("/")
            if inside and stage not in stages:
                faults.append(f"{path} stands in no stage")
                continue
            position = stages.index(stage) if stage in stages else -1
            faults += [
                f"{path} imports {package}.{target}"
                for target in sorted(_stages_imported(module, package) & set(stages))
                if stages.index(target) > position or (home, stage, target) in SHUT
            ]
    return faults


def _stages_imported(module: ast.Module, package: str) -> set[str]:
    """The folders of a package that a file imports from, anywhere in it."""
    names = set(_imports(module))
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            names |= {f"{package}.{alias.name}" for alias in node.names}
    return {
        name.removeprefix(package + ".").split(".")[0] for name in names if name.startswith(package + ".")
    }


def crowded_folders(tree: Tree) -> list[str]:
    """No folder of these rooms has more loose files than one sees at a glance."""
    folders: dict[str, int] = {}
    for path in tree.modules:
        folder, _, name = path.rpartition("/")
        if name != "__init__.py" and any(folder == home or folder.startswith(home + "/") for home in ROOMY):
            folders[folder] = folders.get(folder, 0) + 1
    return [
        f"{folder}: {count} files"
        for folder, count in folders.items()
        if count > ROOMY_FILES and folder not in EQUALS
    ]


def repeated_classes(tree: Tree) -> list[str]:
    """No public class name stands for two things."""
    homes: dict[str, list[str]] = {}
    for path, module in tree.modules.items():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path)
    return [f"{name}: {', '.join(paths)}" for name, paths in homes.items() if len(paths) > 1]


def functions_over_60_lines(tree: Tree) -> set[str]:
    """Every function over 60 lines, whatever its reason."""
    return {
        f"{path}:{node.name}"
        for path, module in tree.modules.items()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > 60
    }


def long_functions(tree: Tree) -> list[str]:
    """A function over 60 lines has a reason."""
    return sorted(functions_over_60_lines(tree) - LONG_FUNCTIONS.keys())


def long_files(tree: Tree) -> list[str]:
    """A file over 400 lines has a reason."""
    return [
        path for path in tree.modules if path not in LONG_FILES and len(tree.text(path).splitlines()) > 400
    ]


#: The room that puts everything together, and the lines that it takes at most: what decides lies elsewhere.
WIRING, WIRING_LINES = "svc/wiring/", 1_500


def heavy_wiring(tree: Tree) -> list[str]:
    """What is plugged into what fits into a few files."""
    lines = sum(len(tree.text(path).splitlines()) for path in tree.modules if path.startswith(WIRING))
    return [f"{WIRING}: {lines} lines"] if lines > WIRING_LINES else []


#: Words that say nothing of a thing by themselves.
BARE_NAMES = frozenset(
    word
    for line in (
        "found told said one known kept made given asked taken seen some whole rest more here there left",
        "wanted at of shown held done last before after place read gone came begun ended sent heard named",
        "meant others other both either what how who these those every each now_ then",
    )
    for word in line.split()
)
#: Which share of a room's local names may be such words.
BARE_SHARE = 0.01


def bare_names(tree: Tree) -> list[str]:
    """Local names say what they stand for."""
    stores: dict[str, list[str]] = {}
    for path, module in tree.modules.items():
        parts = path.split("/")
        room = "/".join(parts[: 2 if parts[0] == "svc" and len(parts) > 2 else 1])
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                stores.setdefault(room, []).extend(
                    node.id
                    for node in ast.walk(function)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                )
    return [
        f"{room}: {bare} of {len(names)} local names"
        for room, names in stores.items()
        if (bare := sum(name in BARE_NAMES for name in names)) > BARE_SHARE * len(names)
    ]


def asyncpg_outside_the_store(tree: Tree) -> list[str]:
    """Only the store speaks to PostgreSQL."""
    return [
        path
        for path, names in tree.imports.items()
        if not path.startswith("svc/store/") and any(name.partition(".")[0] == "asyncpg" for name in names)
    ]


def rows_by_executemany(tree: Tree) -> list[str]:
    """A cancelled `executemany` of asyncpg 0.32 waits for ever when the server has stopped to read."""
    return _using(tree, "executemany", but=EXECUTEMANY)


def transactions_without_an_end(tree: Tree) -> list[str]:
    """asyncpg's own transaction has no bound when it is given up; `one_transaction` has."""
    return _using(tree, "transaction", but={"svc/store/postgres/transactions.py"})


def processes_started_elsewhere(tree: Tree) -> list[str]:
    """A process of ours is started in one way."""
    return _using(tree, "executable", but={"svc/runtime/child.py"})


def _using(tree: Tree, attribute: str, *, but: set[str]) -> list[str]:
    """The files where something of this name is reached for, but for these."""
    return [
        path
        for path, module in tree.modules.items()
        if path not in but
        and any(isinstance(node, ast.Attribute) and node.attr == attribute for node in ast.walk(module))
    ]


def asyncio_beyond_the_border(tree: Tree) -> list[str]:
    """Three files stand on the border to another event loop."""
    return [
        path
        for path, names in tree.imports.items()
        if path not in ASYNCIO_BORDER and any(name.startswith("trio_asyncio") for name in names)
    ]


def silent_modules(tree: Tree) -> list[str]:
    """Every module says what it owns."""
    return [path for path, module in tree.modules.items() if not ast.get_docstring(module)]


def silent_names(tree: Tree) -> list[str]:
    """Every public class and function is described; a protocol's name says what it is."""
    return [
        f"{path}:{node.name}"
        for path, module in tree.modules.items()
        for node in module.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and "Protocol" not in {ast.unparse(base) for base in getattr(node, "bases", [])}
        and not ast.get_docstring(node)
    ]


#: Registries of packages, and paths of a machine. In pieces, or this file would name them.
_PLACES = re.compile(
    "py" + r"pi\.org|files\.pythonhosted|registry\.npm" + r"js|/wo" + "rk/|/ro" + r"ot/\.pyenv"
)


def named_places(tree: Tree, paths: list[str]) -> list[str]:
    """The repository names no registry and no machine."""
    return [path for path in paths if (tree.root / path).is_file() and _PLACES.search(tree.text(path))]


#: What `named_places` looks for, as an example of it.
A_PLACE = "https://py" + "pi.org/simple"

LAWS: dict[str, Callable[[Tree], list[str]]] = {
    law.__name__: law
    for law in (
        forbidden_imports,
        homeless_files,
        import_circles,
        stages_backward,
        crowded_folders,
        repeated_classes,
        long_functions,
        long_files,
        heavy_wiring,
        bare_names,
        asyncpg_outside_the_store,
        rows_by_executemany,
        processes_started_elsewhere,
        asyncio_beyond_the_border,
        silent_modules,
        silent_names,
    )
}
