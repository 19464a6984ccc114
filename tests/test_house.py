"""The laws of the house hold here, and each is broken by what it forbids."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests import house
from tests.house import LAWS, Tree
from tests.readme import PAGES, tables, whole

ROOT = Path(__file__).parent.parent
HERE = Tree(ROOT)

#: By law: files that break it, and what it says of them.
PLANTED: dict[str, tuple[dict[str, str], str]] = {
    "forbidden_imports": ({"protocol/a.py": "import trio"}, "protocol/a.py imports trio"),
    "homeless_files": ({"svc/cellar/a.py": ""}, "svc/cellar/a.py"),
    "import_circles": (
        {
            "svc/domain/a.py": "from svc.domain import b",
            "svc/domain/b.py": "try:\n    from svc.domain.c import thing\nexcept ImportError:\n    pass",
            "svc/domain/c/__init__.py": "import svc.domain.a\nthing = 1",
        },
        "svc.domain.c imports svc.domain.a",
    ),
    "stages_backward": (
        {
            "svc/store/detection/counting/a.py": "from svc.store.detection.judging.due import DueStore",
            "svc/store/detection/judging/a.py": "from svc.store.detection.counting import tallies",
        },
        "svc/store/detection/counting/a.py imports svc.store.detection.judging",
    ),
    "crowded_folders": (
        {f"svc/domain/spans/part_{n}.py": "" for n in range(16)},
        "svc/domain/spans: 16 files",
    ),
    "repeated_classes": (
        {"protocol/a.py": "class Batch: pass", "actors/a.py": "class Batch: pass"},
        "Batch: protocol/a.py, actors/a.py",
    ),
    "long_functions": ({"protocol/a.py": "def walk():\n" + "    pass\n" * 60}, "protocol/a.py:walk"),
    "bare_names": ({"actors/a.py": "def act() -> None:\n    found = 1"}, "actors: 1 of 1 local names"),
    "heavy_wiring": (
        {"svc/wiring/a.py": "x = 1\n" * 900, "svc/wiring/b.py": "x = 1\n" * 601},
        "svc/wiring/: 1501 lines",
    ),
    "long_files": ({"protocol/a.py": "x = 1\n" * 401}, "protocol/a.py"),
    "asyncpg_outside_the_store": ({"svc/front/a.py": "from asyncpg.pool import Pool"}, "svc/front/a.py"),
    "rows_by_executemany": (
        {"svc/store/reads/a.py": "async def write(c): await c.executemany('', [])"},
        "svc/store/reads/a.py",
    ),
    "transactions_without_an_end": (
        {"svc/store/reads/a.py": "async def write(c):\n    async with c.transaction(): pass"},
        "svc/store/reads/a.py",
    ),
    "processes_started_elsewhere": ({"actors/a.py": "import sys\nprint(sys.executable)"}, "actors/a.py"),
    "asyncio_beyond_the_border": ({"svc/front/a.py": "def f():\n    import trio_asyncio"}, "svc/front/a.py"),
    "silent_modules": ({"actors/a.py": "x = 1"}, "actors/a.py"),
    "silent_names": ({"actors/a.py": "def public(): pass\n\ndef _private(): pass"}, "actors/a.py:public"),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_law_of_the_house_holds(name: str) -> None:
    assert LAWS[name](HERE) == []


@pytest.mark.parametrize("name", LAWS)
def test_a_law_of_the_house_is_broken_by_what_it_forbids(name: str, tmp_path: Path) -> None:
    files, verdict = PLANTED[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (broken,) = LAWS[name](Tree(tmp_path))
    assert verdict in broken


@pytest.mark.parametrize(
    ("path", "text", "verdict"),
    [
        ("cases/a.py", "from svc.store.detection import rca", "imports svc.store.detection.rca"),
        (
            "rca/a.py",
            "def f():\n    import svc.store.detection.judging.due",
            "imports svc.store.detection.judging",
        ),
        (
            "taxonomy.py",
            "from svc.store.detection.counting import tallies",
            "imports svc.store.detection.counting",
        ),
        ("sums/a.py", "", "stands in no stage"),
    ],
)
def test_a_stage_that_reaches_behind_itself_is_noticed(
    path: str, text: str, verdict: str, tmp_path: Path
) -> None:
    file = tmp_path / "svc/store/detection" / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert LAWS["stages_backward"](Tree(tmp_path)) == [f"svc/store/detection/{path} {verdict}"]


def test_stages_that_have_nothing_to_do_with_each_other_stay_apart(tmp_path: Path) -> None:
    file = tmp_path / "svc/domain/detect/secrets/a.py"
    file.parent.mkdir(parents=True)
    file.write_text("from svc.domain.detect.engine.slots import SLOT_S")
    assert LAWS["stages_backward"](Tree(tmp_path)) == [
        "svc/domain/detect/secrets/a.py imports svc.domain.detect.engine"
    ]


def test_what_only_a_type_checker_reads_makes_a_circle_too(tmp_path: Path) -> None:
    (tmp_path / "actors").mkdir()
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from actors import b"
    (tmp_path / "actors/a.py").write_text(guarded)
    (tmp_path / "actors/b.py").write_text("from actors import a")
    assert len(LAWS["import_circles"](Tree(tmp_path))) == 1


def test_the_law_against_circles_sees_the_imports_of_the_product() -> None:
    edges = house.import_edges(HERE)
    assert "protocol.refusals" in edges["svc.front.otlp.http"]
    # Four or five a module; none at all is what a law without eyes would find.
    assert sum(map(len, edges.values())) > 3 * len(edges)


def test_every_excuse_is_needed() -> None:
    """A file or function that became short loses its line in the table."""
    assert house.LONG_FUNCTIONS.keys() <= house.functions_over_60_lines(HERE)
    assert [path for path in house.LONG_FILES if len(HERE.text(path).splitlines()) <= 400] == []


def _tracked() -> list[str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_the_repository_names_no_registry_and_no_machine(tmp_path: Path) -> None:
    assert house.named_places(HERE, _tracked()) == []
    (tmp_path / "page.md").write_text(f"pip install --index-url {house.A_PLACE} trace-svc")
    assert house.named_places(Tree(tmp_path), ["page.md"]) == ["page.md"]


def _named_twice(pyproject: str) -> list[str]:
    """Packages that a list of requirements names more than once."""
    project = tomllib.loads(pyproject)["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    named = [Counter(re.split(r"[^\w.-]", requirement)[0] for requirement in each) for each in lists]
    return [package for counts in named for package, count in counts.items() if count > 1]


def test_a_requirement_is_named_once() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert _named_twice(pyproject) == []
    assert _named_twice(pyproject.replace("dependencies = [", 'dependencies = [\n  "trio",', 1)) == ["trio"]


@pytest.mark.parametrize("mark", tables())
def test_a_page_holds_the_table(mark: str) -> None:
    assert f"<!-- {mark} -->\n{tables()[mark]}\n" in whole(), "run `python -m tests.readme` to renew it"


def test_the_readme_is_a_first_screen_and_no_manual() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) < 12_000


def _anchors(page: Path) -> set[str]:
    """The headings of a page, as a host of repositories makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _broken_links(page: Path) -> list[str]:
    links = re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8"))
    targets = [(page.parent / path if path else page, anchor) for path, anchor in links]
    return [
        f"{page.name}: {target.name}#{anchor}"
        for target, anchor in targets
        if not target.exists() or (anchor and anchor not in _anchors(target))
    ]


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"):
        assert _broken_links(page) == []


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# What a 200 means\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#what-a-200-means) [b](other.md#what) [c](none.md) [d](#here) [e](other.md)")
    assert _broken_links(page) == ["page.md: other.md#what", "page.md: none.md#", "page.md: page.md#here"]
