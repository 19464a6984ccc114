"""What can be typed after `trace-svc`, read from the parsers that the help is made of.

Called by `svc.commands.completion`; the scripts for each shell are written from this in
`svc.commands.completion_scripts`. Runs no command and reads no setting.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from svc.commands.command_line import command_parser
from svc.commands.table import COMMANDS

#: Metavars of what is a path.
_PATHS: Final = re.compile(r"\b(FILE|DIR|FOLDER|SOURCE)\b")
#: Names of arguments without a metavar that are paths.
_PATH_NAMES: Final = ("file", "folder", "directory", "dir")
#: How `backup` names the verbs that may stand before its folder.
_VERBS: Final = re.compile(r"\[([a-z|-]+)\]")
#: One sentence of a help, short enough to stand beside a word.
_SENTENCE: Final = 70


@attrs.frozen
class Words:
    """What may stand at one place: words with their sentences, or a path."""

    choices: tuple[tuple[str, str], ...] = ()
    paths: bool = False


@attrs.frozen
class Option:
    """An option; `value` is what may follow it, None where nothing does."""

    flags: tuple[str, ...]
    sentence: str
    value: Words | None


@attrs.frozen
class Level:
    """A place in the command line: the words that lead there, and what may follow.

    `positions` are arguments by their order; the last one stands for all after it where it `repeats`.
    """

    path: str
    options: tuple[Option, ...]
    positions: tuple[Words, ...]
    repeats: bool = False
    #: Words among the first position that lead to a level of their own.
    deeper: tuple[str, ...] = ()


def levels() -> tuple[Level, ...]:
    """Every level, the first word's own first."""
    first = Words(tuple((command.name, _short(command.sentence)) for command in COMMANDS))
    top = Level(
        "", _options(command_parser([])), (first,), deeper=tuple(command.name for command in COMMANDS)
    )
    return (top, *(level for command in COMMANDS for level in _of_command(command.name)))


def _of_command(name: str) -> Iterator[Level]:
    (verbs,) = _verbs(command_parser([name]))
    yield from _of_parser(name, verbs.choices[name])


def _verbs(parser: argparse.ArgumentParser) -> list[Any]:
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def _of_parser(path: str, parser: argparse.ArgumentParser) -> Iterator[Level]:
    positions: list[Words] = []
    deeper: dict[str, argparse.ArgumentParser] = {}
    repeats = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            sentences = {choice.dest: choice.help or "" for choice in action._choices_actions}
            positions.append(Words(tuple((word, _short(sentences.get(word, ""))) for word in action.choices)))
            deeper = dict(action.choices)
        elif not action.option_strings:
            positions.append(_values(action))
            repeats = action.nargs in ("+", "*")
    yield Level(path, _options(parser), tuple(positions), repeats, tuple(deeper))
    for word, sub in deeper.items():
        yield from _of_parser(f"{path} {word}", sub)


def _options(parser: argparse.ArgumentParser) -> tuple[Option, ...]:
    formatter = parser._get_formatter()
    options = []
    for action in parser._actions:
        if not action.option_strings:
            continue
        sentence = "" if action.help in (None, argparse.SUPPRESS) else formatter._expand_help(action)
        value = None if action.nargs == 0 else _values(action)
        options.append(Option(tuple(action.option_strings), _short(sentence), value))
    return tuple(options)


def _values(action: argparse.Action) -> Words:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    paths = bool(_PATHS.search(metavar)) or action.dest in _PATH_NAMES
    verbs = _VERBS.match(metavar)
    words = verbs[1].split("|") if verbs else [str(choice) for choice in action.choices or ()]
    return Words(tuple((word, "") for word in words), paths)


def _short(sentence: str) -> str:
    """The first line of a sentence, without what a shell would take for its own."""
    line = " ".join(sentence.split())
    return line if len(line) <= _SENTENCE else line[: _SENTENCE - 1].rstrip() + "…"
