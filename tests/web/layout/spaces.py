"""Before which atoms a line break shows nothing, worked out from what is rendered on their two sides."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs

from tests.web.layout.atoms import Atom, Kind

#: The statements that end with one of their own.
_PAIRED: Final = frozenset(
    {"if", "for", "macro", "call", "block", "filter", "with", "setblock", "autoescape"}
)
#: Those whose contents are rendered in another place.
_ELSEWHERE: Final = frozenset({"macro", "setblock"})
_MIDDLE: Final = frozenset({"else", "elif"})
_FLOWING: Final = frozenset({"if", "for", "with", "autoescape"})


class _Right(enum.IntEnum):
    """What whitespace would meet on its right."""

    CONTENT = 0
    SPACE = 1
    EDGE = 2


@attrs.define(eq=False)
class Group:
    """An element, or a statement with its end, and what is between."""

    head: Atom
    parts: list[Part]
    tail: Atom

    @property
    def is_statement(self) -> bool:
        """Whether it is Jinja's."""
        return self.head.kind is Kind.STATEMENT

    def branches(self) -> list[list[Part]]:
        """Its parts between `else` and `elif`, which begin each branch but the first."""
        result: list[list[Part]] = [[]]
        for part in self.parts:
            if (
                self.is_statement
                and isinstance(part, Atom)
                and part.name in _MIDDLE
                and part.kind is Kind.STATEMENT
            ):
                result.append([])
            result[-1].append(part)
        return result


Part = Atom | Group


def atoms_of(part: Part) -> Iterator[Atom]:
    """All of its atoms, in order."""
    if isinstance(part, Atom):
        yield part
        return
    yield part.head
    for inner in part.parts:
        yield from atoms_of(inner)
    yield part.tail


def first(part: Part) -> Atom:
    """The atom that begins it."""
    return part.head if isinstance(part, Group) else part


def grouped(sequence: Sequence[Atom]) -> list[Part]:
    """The atoms as a tree. What does not nest, such as an `if` around an opening tag alone, stays flat."""
    levels: list[tuple[Atom | None, list[Part]]] = [(None, [])]
    for atom in sequence:
        if atom.kind is Kind.OPEN or (atom.kind is Kind.STATEMENT and atom.name in _PAIRED):
            levels.append((atom, []))
            continue
        depth = _opened_at(levels, atom)
        while depth and len(levels) - 1 > depth:
            head, parts = levels.pop()
            assert head is not None
            levels[-1][1].extend([head, *parts])
        if depth:
            head, parts = levels.pop()
            assert head is not None
            levels[-1][1].append(Group(head, parts, atom))
        else:
            levels[-1][1].append(atom)
    while len(levels) > 1:
        head, parts = levels.pop()
        assert head is not None
        levels[-1][1].extend([head, *parts])
    _place(levels[0][1], False)
    return levels[0][1]


def _place(parts: Sequence[Part], placed: bool) -> None:
    """Tell the tags of elements whether their parent places them."""
    for part in parts:
        head = first(part)
        if isinstance(part, Atom):
            part.placed = placed and part.kind in (Kind.VOID, Kind.VERBATIM)
        elif part.is_statement:
            _place(part.parts, placed)
        else:
            head.placed = part.tail.placed = placed
            _place(part.parts, head.places)


def _opened_at(levels: Sequence[tuple[Atom | None, list[Part]]], atom: Atom) -> int:
    """The level that an atom ends; 0 where it ends none."""
    if atom.kind is Kind.CLOSE:
        kind, name = Kind.OPEN, atom.name
    elif atom.kind is Kind.STATEMENT and atom.name.startswith("end"):
        kind, name = Kind.STATEMENT, "setblock" if atom.name == "endset" else atom.name[3:]
    else:
        return 0
    for depth in range(len(levels) - 1, 0, -1):
        head = levels[depth][0]
        assert head is not None
        if (head.kind, head.name) == (kind, name):
            return depth
    return 0


def mark(parts: Sequence[Part], sequence: Sequence[Atom]) -> None:
    """Set `free` and `idle` of all atoms."""
    for atom in sequence:
        # Between two statements a line break is dropped; a word would look as if a space stood before it.
        atom.free = atom.text.startswith(("{%-", "{{-")) or (atom.trimmed and atom.kind is Kind.STATEMENT)
    _from_left(parts, True)
    _from_right(parts, _Right.EDGE)
    for before, atom in zip([None, *sequence], sequence, strict=False):
        left = before is None or before.bounds_left or before.name in ("extends", "import", "from")
        atom.free = atom.free or (before is not None and before.text.endswith(("-%}", "-}}")))
        atom.idle = atom.spaced and (left or atom.bounds_right)
        if atom.spaced:
            # Jinja would drop the line break that is to stand for a space.
            after_statement = before is not None and before.kind in (Kind.STATEMENT, Kind.COMMENT)
            atom.free = atom.idle or atom.broken or not after_statement


def _from_left(parts: Sequence[Part], state: bool) -> bool:
    """Walk to the right. The state is whether whitespace shows nothing, for what is rendered before it."""
    for part in parts:
        head = first(part)
        state = _passed(head, state)
        if isinstance(part, Atom):
            state = part.bounds_left or (state and _renders_nothing(part))
        elif not part.is_statement:
            _passed(part.tail, _from_left(part.parts, head.bounds_left or state))
            state = part.tail.bounds_left
        else:
            entry = state and head.name in _FLOWING
            if head.name == "for":
                # A round follows another one.
                entry = entry and all(_without_marks(part, _branches_from_left, True))
            ends = _branches_from_left(part, entry)
            if head.name in _FLOWING:
                state = all(ends) and (
                    entry or (head.name == "if" and _has_else(part)) or head.name == "with"
                )
            else:
                state = state and head.name in _ELSEWHERE
    return state


def _branches_from_left(group: Group, entry: bool) -> list[bool]:
    ends: list[bool] = []
    for number, branch in enumerate(group.branches()):
        if number:
            _passed(first(branch[0]), ends[-1])
        ends.append(_from_left(branch[1:] if number else branch, entry))
    ends[-1] = _passed(group.tail, ends[-1])
    return ends


def _passed(atom: Atom, state: bool) -> bool:
    """The state after the whitespace before an atom; remember that a line break there shows nothing."""
    state = state or atom.spaced
    atom.free = atom.free or state
    return state


def _from_right(parts: Sequence[Part], state: _Right) -> _Right:
    """Walk to the left, with what whitespace would meet that is rendered before all of this."""
    for part in reversed(parts):
        head = first(part)
        if isinstance(part, Atom):
            state = _Right.EDGE if part.bounds_right else state if _renders_nothing(part) else _Right.CONTENT
        elif not part.is_statement:
            # A space outside an inline element is no reason for one inside: it would be underlined with it.
            edge = part.tail.bounds_right or state is _Right.EDGE
            _from_right(part.parts, _right_of(part.tail, _Right.EDGE if edge else _Right.CONTENT))
            state = _Right.EDGE if head.bounds_right else _Right.CONTENT
        elif head.name in _FLOWING:
            if head.name == "for":
                state = min(state, *_without_marks(part, _branches_from_right, state))
            starts = _branches_from_right(part, state)
            state = (
                min(starts)
                if head.name == "with" or (head.name == "if" and _has_else(part))
                else min(state, *starts)
            )
        else:
            _branches_from_right(part, _Right.CONTENT)
            state = state if head.name in _ELSEWHERE else _Right.CONTENT
        state = _right_of(head, state)
    return state


def _branches_from_right(group: Group, leave: _Right) -> list[_Right]:
    starts: list[_Right] = []
    state = _right_of(group.tail, leave)
    for number, branch in reversed(list(enumerate(group.branches()))):
        starts.append(_from_right(branch[1:] if number else branch, state))
        if number:
            state = _right_of(first(branch[0]), leave)
    return starts


def _right_of(atom: Atom, state: _Right) -> _Right:
    """The state before the whitespace of an atom; remember that a line break there shows nothing."""
    atom.free = atom.free or state > _Right.CONTENT
    return max(state, _Right.SPACE) if atom.spaced else state


def _without_marks(group: Group, walk: Callable[[Group, Any], list[Any]], state: Any) -> list[Any]:
    """What a walk comes to, with every atom left as it was."""
    inside = list(atoms_of(group))
    before = [atom.free for atom in inside]
    states = walk(group, state)
    for atom, free in zip(inside, before, strict=True):
        atom.free = free
    return states


def _renders_nothing(atom: Atom) -> bool:
    if atom.kind is Kind.VOID:
        return 'type="hidden"' in atom.text
    return atom.kind is Kind.COMMENT or (
        atom.kind is Kind.STATEMENT and atom.name in ("set", "import", "from", "extends")
    )


def _has_else(group: Group) -> bool:
    return any(isinstance(part, Atom) and part.name == "else" for part in group.parts)
