"""Two texts word by word: what both have, what one has in place of the other. Pure, and bounded in words."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Final, Literal

import attrs

#: Words of each text that are compared; comparing takes the square of them at the worst.
MOST_WORDS: Final = 1_500
#: Letters of an unchanged run that stay in sight beside a change, and how many more are worth a fold.
AROUND: Final = 120
FOLDED: Final = 160
_WORD: Final = re.compile(r"\s+|\w+|[^\w\s]")


@attrs.frozen
class WordRun:
    """A run of words: in both texts, only in the one here, or only in the one there."""

    side: Literal["both", "here", "there"]
    text: str

    @property
    def hidden(self) -> str:
        """The middle of a long run that both texts have, which a page folds."""
        long = self.side == "both" and len(self.text) > 2 * AROUND + FOLDED
        return self.text[AROUND:-AROUND] if long else ""

    @property
    def before(self) -> str:
        """What is shown of the run before its hidden middle; all of it where nothing is hidden."""
        return self.text[:AROUND] if self.hidden else self.text

    @property
    def after(self) -> str:
        """What is shown of the run after its hidden middle."""
        return self.text[-AROUND:] if self.hidden else ""


@attrs.frozen
class WordDiff:
    """The runs in order; `cut` when a text was longer than is compared."""

    runs: tuple[WordRun, ...]
    cut: bool

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(run.side == "both" for run in self.runs)


def word_diff(here: str, there: str) -> WordDiff:
    """The difference of two texts."""
    ours, theirs = _WORD.findall(here[:60_000]), _WORD.findall(there[:60_000])
    cut = len(ours) > MOST_WORDS or len(theirs) > MOST_WORDS
    ours, theirs = ours[:MOST_WORDS], theirs[:MOST_WORDS]
    runs = []
    for verb, i, j, k, m in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if verb == "equal":
            runs.append(WordRun("both", "".join(ours[i:j])))
            continue
        if k < m:
            runs.append(WordRun("there", "".join(theirs[k:m])))
        if i < j:
            runs.append(WordRun("here", "".join(ours[i:j])))
    return WordDiff(tuple(runs), cut)
