"""Scripts that complete `trace-svc` in bash, zsh and fish, each from the same levels.

Called by `svc.commands.completion`. A script holds all words itself and never starts the service's own
program, so that a press of the tab key answers at once. All three walk the line in the same way: words that
belong to an option are passed over, words that lead deeper are gathered to a path, others are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from svc.commands.completable import Level, Option, Words

_FILES: Final = "-files-"


def bash(levels: Sequence[Level]) -> str:
    """For bash 4 and later."""
    return _BASH.format(
        valued=_valued(levels),
        deeper=_deeper(levels),
        values="\n".join(
            f"        {key}) offer={_single(_offer(words))} ;;" for key, words in _value_words(levels)
        ),
        options="\n".join(
            f"        {_single(level.path)}) offer={_single(' '.join(flag for flag, _ in _flags(level)))} ;;"
            for level in levels
        ),
        positions="\n".join(
            f"        {key}) offer={_single(_offer(words))} ;;" for key, words in _position_words(levels)
        ),
    )


def zsh(levels: Sequence[Level]) -> str:
    """For zsh, as a file that is sourced or lies in a folder of `fpath`."""
    return _ZSH.format(
        valued=_valued(levels),
        deeper=_deeper(levels),
        values="\n".join(
            f"        {key}) _trace_svc_offer {_zsh_offer(words)} ;;" for key, words in _value_words(levels)
        ),
        options="\n".join(
            f"        {_single(level.path)}) _trace_svc_offer "
            f"{' '.join(_described(flag, about) for flag, about in _flags(level))} ;;"
            for level in levels
        ),
        positions="\n".join(
            f"        {key}) _trace_svc_offer {_zsh_offer(words)} ;;"
            for key, words in _position_words(levels)
        ),
    )


def fish(levels: Sequence[Level]) -> str:
    """For fish 3 and later."""
    lines = [line for level in levels for line in _fish_lines(level)]
    return _FISH.format(
        valued=" ".join(_single(key) for key in _valued_keys(levels)) or "''",
        deeper=" ".join(_single(key) for key in _deeper_keys(levels)),
        lines="\n".join(lines),
    )


#: By the name of the shell.
SHELLS: Final[dict[str, Callable[[Sequence[Level]], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _fish_lines(level: Level) -> list[str]:
    lines = []
    for option in level.options:
        flags = " ".join(
            f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
        )
        line = f"complete -c trace-svc -n {_single(f'__trace_svc_at {_double(level.path)}')} {flags}"
        if option.value is not None:
            values = _single(" ".join(word for word, _ in option.value.choices))
            line += f" -rF -a {values}" if option.value.paths else f" -x -a {values}"
        lines.append(f"{line} -d {_single(option.sentence)}")
    for number, repeated, words in _places(level):
        span = f"{number} more" if repeated else f"{number} only"
        condition = _single(f"__trace_svc_at {_double(level.path)} {span}")
        lines += [
            f"complete -c trace-svc -n {condition} -a {_single(word)} -d {_single(sentence)}"
            for word, sentence in words.choices
        ]
        if words.paths:
            lines.append(f"complete -c trace-svc -n {condition} -F")
    return lines


def _places(level: Level) -> list[tuple[int, bool, Words]]:
    """Each argument by its number, and whether it stands for those behind it too."""
    end = len(level.positions) - 1
    return [(n, level.repeats and n == end, words) for n, words in enumerate(level.positions)]


def _flags(level: Level) -> list[tuple[str, str]]:
    """Each spelling of each option, with its sentence."""
    return [(flag, option.sentence) for option in level.options for flag in option.flags]


def _with_values(levels: Sequence[Level]) -> list[tuple[Level, Option, Words]]:
    return [
        (level, option, option.value)
        for level in levels
        for option in level.options
        if option.value is not None
    ]


def _valued_keys(levels: Sequence[Level]) -> list[str]:
    return [f"{level.path}:{flag}" for level, option, _ in _with_values(levels) for flag in option.flags]


def _deeper_keys(levels: Sequence[Level]) -> list[str]:
    return [f"{level.path}:{word}" for level in levels for word in level.deeper]


def _valued(levels: Sequence[Level]) -> str:
    return "|".join(_single(key) for key in _valued_keys(levels)) or "''"


def _deeper(levels: Sequence[Level]) -> str:
    return "|".join(_single(key) for key in _deeper_keys(levels))


def _value_words(levels: Sequence[Level]) -> list[tuple[str, Words]]:
    return [
        ("|".join(_single(f"{level.path}:{flag}") for flag in option.flags), value)
        for level, option, value in _with_values(levels)
    ]


def _position_words(levels: Sequence[Level]) -> list[tuple[str, Words]]:
    """Each argument by the pattern of its place; the one that repeats matches whatever comes."""
    return [
        (f"{_single(f'{level.path}:')}*" if repeated else _single(f"{level.path}:{number}"), words)
        for level in levels
        for number, repeated, words in _places(level)
    ]


def _offer(words: Words) -> str:
    return " ".join([*(word for word, _ in words.choices), *([_FILES] if words.paths else [])])


def _zsh_offer(words: Words) -> str:
    described = [_described(word, sentence) for word, sentence in words.choices]
    return " ".join([*described, *([_FILES] if words.paths else [])])


def _described(word: str, sentence: str) -> str:
    escaped = word.replace(":", "\\:")
    return _single(f"{escaped}:{sentence}" if sentence else escaped)


def _single(text: str) -> str:
    """Quoted, in a way that all three shells read alike."""
    return "'" + text.replace("'", "’") + "'"


def _double(text: str) -> str:
    return f'"{text}"'


_BASH: Final = """\
# Completes trace-svc in bash: source <(trace-svc completion bash)
_trace_svc() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} path= before= offer= given=0 at word
    for ((at = 1; at < COMP_CWORD; at++)); do
        word=${{COMP_WORDS[at]}}
        case "$path:$word" in
        {valued}) before="$path:$word"; ((at++ < COMP_CWORD - 1)) && before= ;;
        *:-*) ;;
        {deeper}) path="${{path:+$path }}$word" given=0 ;;
        *) ((given++)) ;;
        esac
    done
    if [[ -n $before ]]; then
        case "$before" in
{values}
        esac
    elif [[ $current == -* ]]; then
        case "$path" in
{options}
        esac
    else
        case "$path:$given" in
{positions}
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "${{offer//-files-/}}" -- "$current")
    if [[ $offer == *-files-* ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -f -- "$current")
    fi
}}
complete -F _trace_svc trace-svc
"""

_ZSH: Final = """\
#compdef trace-svc
# Completes trace-svc in zsh: source <(trace-svc completion zsh), after compinit.
_trace_svc_offer() {{
    local -a described
    described=("${{(@)argv:#-files-}}")
    (( ${{#described}} )) && _describe -V 'trace-svc' described
    (( ${{argv[(I)-files-]}} )) && _files
    return 0
}}
_trace_svc() {{
    local current=${{words[CURRENT]}} trail= before= word
    integer given=0 at
    for ((at = 2; at < CURRENT; at++)); do
        word=${{words[at]}}
        case "$trail:$word" in
        ({valued}) before="$trail:$word"; ((at++ < CURRENT - 1)) && before= ;;
        (*:-*) ;;
        ({deeper}) trail="${{trail:+$trail }}$word" given=0 ;;
        (*) ((given++)) ;;
        esac
    done
    if [[ -n $before ]]; then
        case "$before" in
{values}
        esac
    elif [[ $current == -* ]]; then
        case "$trail" in
{options}
        esac
    else
        case "$trail:$given" in
{positions}
        esac
    fi
}}
if [[ $funcstack[1] == _trace_svc ]]; then
    _trace_svc "$@"
else
    compdef _trace_svc trace-svc
fi
"""

_FISH: Final = """\
# Completes trace-svc in fish: trace-svc completion fish > ~/.config/fish/completions/trace-svc.fish
set -g __trace_svc_valued {valued}
set -g __trace_svc_deeper {deeper}
function __trace_svc_at --description 'whether the line is at this level of trace-svc, and at this argument'
    set -l trail
    set -l given 0
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- "$trail:$word" $__trace_svc_valued
            set skip 1
        else if string match -q -- '-*' $word
            continue
        else if contains -- "$trail:$word" $__trace_svc_deeper
            set trail (string trim -- "$trail $word")
            set given 0
        else
            set given (math $given + 1)
        end
    end
    test "$trail" = "$argv[1]"
    or return 1
    test (count $argv) = 1
    and return 0
    # What an option wants is no argument of the command.
    test $skip = 0
    or return 1
    test $given = $argv[2]
    or begin
        test $argv[3] = more
        and test $given -gt $argv[2]
    end
end
complete -c trace-svc -f
{lines}
"""
