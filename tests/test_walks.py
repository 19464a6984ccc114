"""The walks through the code in CONTRIBUTING.md are true, and a wrong step in one is noticed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house import Tree
from tests.walks import Code, Step, walks

ROOT = Path(__file__).parent.parent
HERE = Code(Tree(ROOT))
WALKS = walks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))

#: A product of five files: a sender and a reader of one message, what connects them, and what one calls.
SMALL = {
    "protocol/orders.py": "class Order: pass\nclass Receipt: pass\ndef framed(order: Order) -> None: pass",
    "actors/sender.py": "from protocol.orders import Order",
    "svc/reader.py": "from protocol.orders import framed\nfrom svc import table",
    "svc/table.py": "",
    "svc/wiring.py": "from actors import sender\nfrom svc import reader",
}


def test_there_is_a_walk_for_a_batch_a_question_a_finding_and_a_run() -> None:
    assert [title.split(":")[0] for title in WALKS] == [
        "One batch",
        "One question",
        "One finding",
        "One run of an agent",
    ]
    assert all(len(steps) == 10 for steps in WALKS.values())


def test_a_finding_passes_at_most_25_files_and_none_of_them_twice() -> None:
    """As `svc/detecting/__init__.py` tells its way in ten steps."""
    text = ast.get_docstring(HERE.tree.modules["svc/detecting/__init__.py"]) or ""
    steps = text[text.index("1. ") :]
    assert re.findall(r"^(\d+)\. ", steps, re.M) == [str(n) for n in range(1, 11)]
    rooms = ("svc/detecting/", "svc/store/detection/", "svc/domain/detect/", "")
    files = [f"{name.replace('.', '/')}.py" for name in re.findall(r"`([\w.]+)`", steps)]
    homes = [[room + file for room in rooms if room + file in HERE.names] for file in files]
    assert [file for file, paths in zip(files, homes, strict=True) if len(paths) != 1] == []
    assert len(files) == len(set(files)) <= 25


@pytest.mark.parametrize("title", WALKS)
def test_every_step_of_a_walk_is_in_the_code(title: str) -> None:
    assert HERE.faults(WALKS[title]) == []


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_in_another_order_is_noticed(title: str) -> None:
    steps = WALKS[title]
    for n in range(1, len(steps) - 1):
        swapped = [*steps[:n], steps[n + 1], steps[n], *steps[n + 2 :]]
        assert HERE.faults(swapped) != [], (title, steps[n])


@pytest.fixture
def small(tmp_path: Path) -> Code:
    for path, text in SMALL.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return Code(Tree(tmp_path))


def _walk(*rows: tuple[str, str]) -> list[Step]:
    return [Step(*row) for row in rows]


def test_a_step_is_joined_by_an_import_a_connector_or_a_message(small: Code) -> None:
    message = "`Order` in `protocol/orders.py`"
    assert small.faults(_walk(("", "svc/reader.py"), ("→", "svc/table.py"), ("←", "svc/reader.py"))) == []
    assert small.faults(_walk(("", "actors/sender.py"), ("`svc/wiring.py`", "svc/reader.py"))) == []
    assert small.faults(_walk(("", "actors/sender.py"), (message, "svc/reader.py"))) == []


@pytest.mark.parametrize(
    ("join", "path"),
    [
        ("→", "svc/reader.py"),  # imports nothing of it
        ("←", "svc/reader.py"),
        ("", "svc/reader.py"),  # says nothing
        ("→", "svc/cellar.py"),  # is not there
        ("`svc/reader.py`", "svc/table.py"),  # connects one of them only
        ("`svc/cellar.py`", "svc/reader.py"),
        ("`Order` in `protocol/orders.py`", "svc/table.py"),  # never hears of it
        ("`Receipt` in `protocol/orders.py`", "svc/reader.py"),  # neither imports it
        ("`Invoice` in `protocol/orders.py`", "svc/reader.py"),  # is no class
        ("`Order` in `protocol/cellar.py`", "svc/reader.py"),
        ("somehow", "svc/reader.py"),
    ],
)
def test_a_planted_wrong_step_is_noticed(small: Code, join: str, path: str) -> None:
    assert len(small.faults(_walk(("", "actors/sender.py"), (join, path)))) == 1
