"""How many examples a law draws: a quarter in the ordinary run, all of them where a release is proved.

Owns the share of each profile of Hypothesis that tests/conftest.py registers. Laws with a number of their own
call `examples`; all others have the profile's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

#: What a law without a number of its own draws at length, which is Hypothesis's own.
AT_LENGTH = 100


def examples(at_length: int) -> int:
    """What a law draws in this run that draws `at_length` where a release is proved; at least five."""
    return max(5, at_length * settings.default.max_examples // AT_LENGTH)


def at_length() -> bool:
    """Whether a release is proved in this run."""
    return settings.default.max_examples >= AT_LENGTH


def share(things: Sequence[T], turn: int, parts: int) -> Sequence[T]:
    """Each `parts`-th of the things, another for each turn; all of them where a release is proved."""
    return things if at_length() else things[turn % parts :: parts]


def first_always(values: Iterable[Any]) -> list[Any]:
    """The parameters of a costly test: every change passes with the first, a release with all of them."""
    first, *others = values
    return [first, *(pytest.param(value, marks=pytest.mark.release) for value in others)]
