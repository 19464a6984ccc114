"""A template written down: a group on one line where it fits, else its parts on lines of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tests.web.layout.atoms import BOXES, QUOTED, Atom, Kind, atoms
from tests.web.layout.spaces import Group, Part, atoms_of, first, grouped, mark

COLUMNS: Final = 120
_STEP: Final = 2
_JOINTS: Final = frozenset({"if", "else", "and", "or"})


def laid_out(source: str) -> str:
    """The template in lines of 120 columns where that shows nothing."""
    # A line break is a space, beside which others are free that were not before.
    while (text := _written(source)) != source:
        source = text
    return source


def _written(source: str) -> str:
    sequence = atoms(source)
    parts = grouped(sequence)
    mark(parts, sequence)
    page = _Page()
    page.put_parts(parts, 0, None)
    return "\n".join(line.rstrip() for line in page.lines if line.strip()) + "\n"


def _glue(atom: Atom) -> str:
    return " " if atom.spaced and not atom.idle else ""


def _flat(part: Part) -> str:
    """On one line."""
    return "".join(
        f"{_glue(atom) if number else ''}{atom.text}" for number, atom in enumerate(atoms_of(part))
    )


def _is_inline(part: Part) -> bool:
    """Whether it flows with the words around it."""
    if isinstance(part, Atom):
        return part.kind in (Kind.WORD, Kind.VALUE, Kind.COMMENT) or (
            part.kind is Kind.VOID and not part.bounds
        )
    return not part.is_statement and not _holds_block(part) and part.head.name not in BOXES


def _holds_block(part: Part) -> bool:
    return any(atom.bounds and atom.kind is not Kind.CLOSE for atom in atoms_of(part))


def _is_large(part: Part) -> bool:
    """Whether it stands on lines of its own where its parent does not fit on one."""
    if isinstance(part, Atom):
        return part.kind is Kind.STATEMENT or part.bounds
    return _holds_block(part) or (part.is_statement and len(_flat(part)) > COLUMNS // 2)


def _was_broken(part: Part) -> bool:
    """Whether the author gave it lines of its own, which are kept."""
    if isinstance(part, Atom):
        return "\n" in part.text
    inner = [atom.broken for atom in map(first, part.parts)] + [part.tail.broken]
    return (not _is_inline(part) and inner[0]) or any(_was_broken(each) for each in part.parts)


class _Page:
    """The lines so far."""

    def __init__(self) -> None:
        self.lines = [""]

    @property
    def column(self) -> int:
        return len(self.lines[-1])

    def put(self, text: str) -> None:
        begin, *more = text.split("\n")
        self.lines[-1] += begin
        self.lines += more

    def new_line(self, indent: int) -> None:
        if self.lines[-1].strip():
            self.lines.append("")
        self.lines[-1] = " " * indent

    def put_parts(self, parts: Sequence[Part], indent: int, group: Group | None, after: int = 0) -> None:
        """Parts in order, with a line break wherever one is due and shows nothing. `after` columns follow."""
        for number, part in enumerate(parts):
            atom = first(part)
            middle = group is not None and group.is_statement and atom.name in ("else", "elif")
            column = indent - _STEP if middle and atom.kind is Kind.STATEMENT else indent
            before = parts[number - 1] if number else None
            stuck = _stuck(parts, number, group.tail if group else None, after)
            tight = self.column + len(_glue(atom)) + len(_flat(part)) + stuck > COLUMNS
            if (atom.free or _is_trimmed(atom)) and (tight or _is_due(part, before, group)):
                self.new_line(column)
            else:
                self.put(_glue(atom))
            self.put_part(part, column, stuck)

    def put_part(self, part: Part, indent: int, stuck: int) -> None:
        """A part, on one line where it fits with the columns that are stuck to it."""
        if isinstance(part, Atom):
            self.put_atom(part, indent, stuck)
            return
        text = _flat(part)
        if self.column + len(text) + stuck <= COLUMNS and not _was_broken(part):
            self.put(text)
            return
        self.put_atom(part.head, indent, _stuck((part.head, *part.parts), 0, part.tail, stuck))
        self.put_parts(part.parts, indent + _STEP, part, stuck)
        tail = part.tail
        if (tail.free and (part.parts or tail.broken)) or (
            _is_trimmed(tail) and self.column + len(tail.text) > COLUMNS
        ):
            self.new_line(indent)
        else:
            self.put(_glue(tail))
        self.put(tail.text)

    def put_atom(self, atom: Atom, indent: int, stuck: int) -> None:
        """An atom, over several lines where it does not fit with what is stuck to it."""
        if self.column + len(atom.text) + stuck <= COLUMNS:
            self.put(atom.text)
        elif atom.kind in (Kind.OPEN, Kind.VOID, Kind.VERBATIM):
            self.put_pieces(_attributes(atom.text), indent + 2 * _STEP, stuck)
        elif atom.kind is Kind.COMMENT and atom.text.startswith("{#"):
            self.put_pieces(atom.text.split(" "), indent + 3)
        elif atom.kind in (Kind.VALUE, Kind.STATEMENT):
            self.put_pieces(_clauses(atom.text), indent + 2 * _STEP, stuck)
        else:
            self.put(atom.text)

    def put_pieces(self, pieces: Sequence[str], indent: int, stuck: int = 0) -> None:
        """Pieces with a space or, where the next does not fit, a line break between."""
        for number, piece in enumerate(pieces):
            room = COLUMNS - (stuck if piece is pieces[-1] else 0)
            if number and self.column + 1 + len(piece.split("\n")[0]) > room and self.column > indent:
                self.new_line(indent)
            elif number:
                self.put(" ")
            inner = _inner(piece) if self.column + len(piece) > room and "\n" not in piece else [piece]
            if len(inner) > 1:
                self.put_pieces(inner, indent + _STEP, COLUMNS - room)
            else:
                self.put(piece)


def _is_due(part: Part, before: Part | None, group: Group | None) -> bool:
    """Whether a line break is due although the part would fit: at the edges of blocks, and where one was."""
    if before is None:
        return (
            group is None
            or group.is_statement
            or group.head.bounds
            or group.head.name == "svg"
            or _holds_block(group)
        )
    if _is_large(part) or _is_large(before):
        return True
    return first(part).broken and not (_is_inline(part) and _is_inline(before))


def _is_trimmed(atom: Atom) -> bool:
    """Whether Jinja drops a line break before it. A word would look as if a space stood there."""
    return atom.trimmed and not atom.spaced and atom.kind is not Kind.WORD


def _stuck(parts: Sequence[Part], number: int, tail: Atom | None, after: int) -> int:
    """The columns of what follows a part and cannot be broken away from it."""
    columns = 0
    for part in parts[number + 1 :]:
        atom = first(part)
        if atom.free or columns > COLUMNS or _is_trimmed(atom):
            return columns
        columns += len(_glue(atom)) + len(_flat(part))
    if tail is None or tail.free:
        return columns
    return columns + len(_glue(tail)) + len(tail.text) + after


def _attributes(tag: str) -> list[str]:
    """A tag at the spaces between its attributes, not at those within quotes and conditions."""
    pieces, quote, depth, ended = [""], "", 0, False
    for piece in re.findall(r"\{[{%].*?[}%]\}|.", tag, re.S):
        if piece.startswith("{%"):
            depth += (
                1 if re.match(r"\{%-? (?:if|for)\b", piece) else -1 if re.match(r"\{%-? end", piece) else 0
            )
        elif piece in ('"', "'") and quote in ("", piece):
            quote = "" if quote else piece
        ended = ended or (piece == ">" and not quote)
        if piece == " " and not (quote or depth or ended or pieces[-1].endswith("%}")):
            pieces.append("")
        else:
            pieces[-1] += piece
    return pieces


def _inner(text: str) -> list[str]:
    """A piece at the spaces of the expressions and statements in it, outside their quotes."""
    pieces = [""]
    for part in re.split(r"(\{[{%].*?[}%]\})", text):
        if not part.startswith(("{{", "{%")):
            pieces[-1] += part
            continue
        words = _words(part)
        # The first word stays with the brace, the last brace with its word.
        pieces[-1] += " ".join(words[:2])
        pieces += words[2:-1]
        if len(words) > 2:
            pieces[-1] += f" {words[-1]}"
    return pieces


def _words(text: str) -> list[str]:
    words = [""]
    for piece in re.findall(rf"{QUOTED}|.", text):
        if piece == " ":
            words.append("")
        else:
            words[-1] += piece
    return words


def _clauses(text: str) -> list[str]:
    """An expression at its conditions; one that would not fit on a line at its words."""
    *words, end = _words(text)
    clauses: list[str] = [" ".join(words[:2])]
    for word in words[2:]:
        if word in _JOINTS:
            clauses.append(word)
        else:
            clauses[-1] += f" {word}"
    clauses[-1] += f" {end}"
    return [
        piece for clause in clauses for piece in (_words(clause) if len(clause) > COLUMNS - 24 else [clause])
    ]
