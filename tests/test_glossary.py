"""The glossary explains each of the words that a newcomer meets, and the first pages lead to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = (ROOT / "deploy" / "glossary.md").read_text(encoding="utf-8")

WORDS = (
    *(
        "trace",
        "span",
        "call site",
        "session",
        "settle",
        "unpriced",
        "tally",
        "subject",
        "baseline",
        "detector",
    ),
    *("finding", "evidence", "confirmed", "withheld", "case", "absorb", "report", "spool", "dead letter"),
    "ledger",
)


def entries(text: str) -> dict[str, str]:
    """What is said of each word, by its heading in lower case."""
    parts = re.split(r"^## (.+)$", text, flags=re.M)[1:]
    return {word.lower(): said.strip() for word, said in zip(parts[::2], parts[1::2], strict=True)}


def gaps(text: str) -> list[str]:
    """The words without an entry of two to five sentences."""
    explained = entries(text)
    return [word for word in WORDS if not 2 <= len(re.findall(r"[.:](?:\s|$)", explained.get(word, ""))) <= 5]


def test_each_of_the_twenty_words_has_an_entry_and_no_other_has() -> None:
    assert len(WORDS) == 20
    assert gaps(GLOSSARY) == []
    assert entries(GLOSSARY).keys() == set(WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_is_left_out_is_missed(word: str) -> None:
    heading = f"## {word.capitalize()}\n"
    assert heading in GLOSSARY
    assert word in gaps(GLOSSARY.replace(heading, ""))
    assert gaps(re.sub(rf"({heading}\n).*?\n\n", r"\1", GLOSSARY + "\n\n", flags=re.S)) == [word]


@pytest.mark.parametrize("page", ["README.md", "deploy/README.md", "CONTRIBUTING.md"])
def test_the_first_pages_lead_to_it(page: str) -> None:
    assert re.search(r"\]\((deploy/)?glossary\.md\)", (ROOT / page).read_text(encoding="utf-8"))
