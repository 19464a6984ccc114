"""Laws of completion: real shells offer every command, verb and option of the help, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from svc.commands.completable import Level, levels
from svc.commands.completion_scripts import SHELLS
from svc.commands.table import COMMANDS
from tests.commands.test_command_line import said
from tests.conftest import missing

#: Prints what bash would offer for the line in its arguments, the last of them unfinished.
_BASH = """
source "$1"; complete -p trace-svc >/dev/null || exit 9
while IFS=' ' read -r -a COMP_WORDS; do
    [[ ${COMP_WORDS[-1]} == _ ]] && COMP_WORDS[-1]=
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _trace_svc
    printf '%s\\n' "${COMPREPLY[@]}"; printf -- '---\\n'
done
"""
#: The same for zsh, whose own functions show words to somebody at a terminal: here they print them.
_ZSH = """
emulate zsh; autoload -Uz compinit; compinit -D -u; source "$1"
[[ ${_comps[trace-svc]} == _trace_svc ]] || exit 9
_describe() { local list=${@[-1]} one; for one in "${(@P)list}"; do one=${one//\\\\:/$'\\1'}
    one=${one%%:*}; one=${one//$'\\1'/:}; [[ $one == ${words[CURRENT]}* ]] && print -r -- $one; done }
_files() { print -r -- -files- }
while IFS= read -r line; do
    words=(${=line}); [[ ${words[-1]} == _ ]] && words[-1]=''
    CURRENT=${#words}; _trace_svc; print -r -- ---
done
"""
_FISH = """
source $argv[1]
while read -l line
    complete -C (string replace -r ' _$' ' ' -- $line); echo ---
end
"""


@cache
def script(shell: str) -> str:
    """What the command prints."""
    code, text, errors = said("completion", shell)
    assert (code, errors) == (0, "")
    return text


def offered(shell: str, lines: list[str], folder: Path) -> list[set[str]]:
    """The words that a shell offers at the end of each line; `_` as the last word is nothing yet."""
    if shutil.which(shell) is None:
        missing(shell)
    file = folder / f"trace-svc.{shell}"
    file.write_text(script(shell))
    words = {
        "bash": ["bash", "--norc", "-c", _BASH, "bash", str(file)],
        "zsh": ["zsh", "-f", "-c", _ZSH, "zsh", str(file)],
        "fish": ["fish", "--no-config", "-c", _FISH, str(file)],
    }[shell]
    done = subprocess.run(
        words,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = done.stdout.split("---\n")[:-1]
    assert len(answers) == len(lines)
    return [
        {line.split("\t")[0].rstrip("/") for line in answer.splitlines() if line} - {"-files-", file.name}
        for answer in answers
    ]


def line(level: Level, last: str) -> str:
    """A line at a level, with its last word."""
    return " ".join(word for word in ("trace-svc", level.path, last) if word)


SAID = ("bash", "zsh", "fish")


@pytest.mark.parametrize(
    "shell", [shell if shell == "bash" else pytest.param(shell, marks=pytest.mark.release) for shell in SAID]
)
def test_every_command_verb_and_option_is_offered_where_it_belongs(shell: str, tmp_path: Path) -> None:
    every = levels()
    options = offered(shell, [line(level, "--") for level in every], tmp_path)
    for level, words in zip(every, options, strict=True):
        flags = {flag for option in level.options for flag in option.flags if flag.startswith("--")}
        assert {word for word in words if word.startswith("--")} == flags, level.path
    firsts = offered(shell, [line(level, "_") for level in every], tmp_path)
    for level, words in zip(every, firsts, strict=True):
        choices = {word for word, _ in level.positions[0].choices} if level.positions else set()
        assert {word for word in words if not word.startswith("-")} == choices, level.path


#: What is offered at the end of a line.
PLACES: dict[str, set[str]] = {
    "trace-svc ke": {"keys"},
    "trace-svc keys cr": {"create"},
    # A value of an option is no verb, and a word behind one is none of its values.
    "trace-svc ask count --project keys --by _": {"start", "arrival"},
    "trace-svc ask series --top 3 we": {"week"},
    "trace-svc ask count --project _": set(),
    "trace-svc completion f": {"fish"},
    "trace-svc backup ver": {"verify"},
    "trace-svc nonsense _": set(),
}


@pytest.mark.parametrize("shell", SAID)
def test_what_is_offered_at_a_place(shell: str, tmp_path: Path) -> None:
    answers = offered(shell, list(PLACES), tmp_path)
    assert dict(zip(PLACES, answers, strict=True)) == PLACES


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_paths_are_offered_where_a_path_is_wanted(shell: str, tmp_path: Path) -> None:
    (tmp_path / "nightly").mkdir()
    answers = offered(shell, ["trace-svc backup nig", "trace-svc serve --data-dir nig"], tmp_path)
    assert answers == [{"nightly"}, {"nightly"}]


def test_the_levels_are_those_of_the_help() -> None:
    every = {level.path: level for level in levels()}
    assert {command.name for command in COMMANDS} <= every.keys()
    for level in every.values():
        for word in level.deeper:
            assert f"{level.path} {word}".strip() in every
    for path in ("keys create", "ask facets", "export"):
        _, text, _ = said(*path.split(), "--help")
        for option in every[path].options:
            assert all(flag in text for flag in option.flags)


def test_another_shell_is_refused_with_those_that_there_are() -> None:
    assert tuple(SHELLS) == SAID
    code, _, errors = said("completion", "tcsh")
    assert code == 2
    assert "is not one of bash, zsh, fish" in errors
