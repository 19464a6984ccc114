"""The documentation site: every page is in it, every link leads somewhere, nothing is asked of elsewhere."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from svc.config.table import setting_rows
from svc.store.reads.usage.compared_traces import MOST_ENDS, SAMPLED_TRACES
from tests.conftest import missing

ROOT = Path(__file__).parents[2]
SITE = ROOT / "deploy" / "site"


def built(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a tree."""
    return subprocess.run(
        [sys.executable, str(root / "deploy" / "site" / "build.py"), str(out)],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs") / "site"
    done = built(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


def copied(folder: Path) -> Path:
    """The documents of the repository, in a tree that may be changed."""
    for name in ("deploy", "svc/web/static"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.md"), ROOT / "LICENSE", ROOT / "NOTICE"):
        shutil.copy(path, folder)
    return folder


def test_every_document_is_a_page_and_every_page_names_all_others(site: Path) -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "deploy").glob("*.md")]
    pages = list(site.glob("*.html"))
    assert len(pages) == len(documents)
    for page in pages:
        text = page.read_text()
        assert [other.name for other in pages if f'href="{other.name}"' not in text] == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("[gone](none.md)", "leads nowhere"),
        ("[gone](faq.md#no-such-question)", "names no heading"),
        ("![far](https://pictures.example.org/a.png)", "from elsewhere"),
    ],
)
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, line: str, fault: str) -> None:
    tree = copied(tmp_path / "tree")
    with (tree / "deploy" / "alerts.md").open("a") as page:
        page.write(f"\n{line}\n")
    done = built(tree, tmp_path / "out")
    assert done.returncode != 0
    assert fault in done.stderr


def test_the_search_finds_every_setting_and_leads_to_its_row(site: Path) -> None:
    entries = json.loads((site / "search.json").read_text())
    by_title = {entry["title"]: entry["href"] for entry in entries if entry["href"].startswith("settings")}
    settings = (site / "settings.html").read_text()
    for row in setting_rows():
        assert by_title[row.name] == f"settings.html#{row.name.lower()}"
        assert f'id="{row.name.lower()}"' in settings


def test_the_search_puts_the_name_before_the_mention_and_wants_every_word(site: Path, tmp_path: Path) -> None:
    if shutil.which("node") is None:
        missing("node")
    # By itself node takes a file of this name for no module.
    module = shutil.copy(site / "search.js", tmp_path / "search.mjs")
    script = """
        import { find } from "SEARCH";
        import { readFileSync } from "node:fs";
        const entries = JSON.parse(readFileSync("INDEX"));
        const queries = ["svc_base_path", "disk budget", "nosuchword budget", ""];
        console.log(JSON.stringify(queries.map((query) => find(entries, query).map((entry) => entry.href))));
    """.replace("SEARCH", str(module)).replace("INDEX", str(site / "search.json"))
    done = subprocess.run(
        ["node", "--input-type=module", "--no-warnings", "-e", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    name, words, none, blank = json.loads(done.stdout)
    assert name[0] == "settings.html#svc_base_path"
    assert words
    assert (none, blank) == ([], [])


def test_the_documents_name_the_bounds_of_a_comparison_that_are_in_force() -> None:
    text = " ".join((ROOT / "deploy" / "asking.md").read_text().split())
    assert f"At most {SAMPLED_TRACES:,} traces per side are examined" in text
    assert f"more than {MOST_ENDS:,} traces match them, its size is an estimate" in text
