"""A template as atoms: words, tags, and the expressions, statements and comments of Jinja."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import attrs

from svc.web.shell.assets import STATIC
from svc.web.shell.render import BLOCKS

#: What is drawn within `svg`, where no whitespace shows.
DRAWN: Final = frozenset(
    {"g", "rect", "line", "path", "circle", "polyline", "polygon", "defs", "use", "ellipse", "marker"}
    | {"clippath", "lineargradient", "stop"}
)
#: In a line of text themselves; whitespace just within them shows nothing.
BOXES: Final = frozenset({"button", "select", "svg"})
_VOID: Final = frozenset({"input", "br", "hr", "img", "meta", "link", "base", "wbr", "col"})
#: Kept as they are: each space in them shows, or is not HTML.
_VERBATIM: Final = frozenset({"pre", "textarea", "script", "style", "title", "text", "tspan"})
#: The classes whose style keeps spaces.
_VERBATIM_CLASSES: Final = frozenset({"preview", "words", "given-text"})

#: A text within an expression.
QUOTED: Final = r'"(?:\\.|[^"\\])*"' r"|'(?:\\.|[^'\\])*'"
_JINJA: Final = re.compile(rf"\{{(?:#.*?#|[{{%](?:{QUOTED}|[^\"'])*?[%}}])\}}", re.S)
_TAG: Final = re.compile(r"<(/?)([!a-zA-Z][\w-]*)")


class Kind(enum.Enum):
    """What an atom is."""

    WORD = enum.auto()
    VALUE = enum.auto()
    STATEMENT = enum.auto()
    COMMENT = enum.auto()
    OPEN = enum.auto()
    CLOSE = enum.auto()
    VOID = enum.auto()
    VERBATIM = enum.auto()


@attrs.define(eq=False)
class Atom:
    """One atom, and what stands before it."""

    kind: Kind
    text: str
    #: Of a tag its element, of a statement its first word.
    name: str = ""
    #: Whitespace that is rendered before it.
    spaced: bool = False
    #: A line break before it in the source.
    broken: bool = False
    #: A line break before it shows nothing.
    free: bool = False
    #: It follows a statement directly, whose line break Jinja drops (`trim_blocks`).
    trimmed: bool = False
    #: The whitespace before it shows nothing, so it may go.
    idle: bool = False
    #: A tag of an element that its parent places, as in a row: spaces beside it show nothing.
    placed: bool = False

    @property
    def bounds(self) -> bool:
        """Whether it is a tag of a block, beside which whitespace shows nothing on either side."""
        tag = self.kind in (Kind.OPEN, Kind.CLOSE, Kind.VOID, Kind.VERBATIM)
        return self.placed or (tag and self.name in BLOCKS | DRAWN | {"br", "pre", "text", "!doctype"})

    @property
    def places(self) -> bool:
        """Whether it opens an element that places its children at every width."""
        fixed = re.sub(r"\{% (?:if|for).*?\{% end(?:if|for) %\}|\{.*?\}\}?", " ", self.text)
        classes = re.search(r'class="([^"]*)"', fixed)
        return classes is not None and not _placing().isdisjoint(classes[1].split())

    @property
    def bounds_left(self) -> bool:
        """Whether whitespace after it shows nothing."""
        return self.bounds or (self.kind is Kind.OPEN and self.name in BOXES)

    @property
    def bounds_right(self) -> bool:
        """Whether whitespace before it shows nothing."""
        return self.bounds or (self.kind is Kind.CLOSE and self.name in BOXES)


@cache
def _placing() -> frozenset[str]:
    """The classes whose own rule is `flex` or `grid`, and that no width makes a block of."""
    names, blocks = set[str](), set[str]()
    for path in STATIC.glob("*.css"):
        for indent, selectors, body in re.findall(r"^( *)(\.[^{}]*?) \{\n([^{}]*)", path.read_text(), re.M):
            ends = {selector.strip().rpartition(".")[2] for selector in selectors.split(",")}
            if re.search(r"^ +display: (?:inline-)?(?:flex|grid);", body, re.M) and not indent:
                names |= {selector.strip().lstrip(".") for selector in selectors.split(",")}
            elif re.search(r"^ +display: (?:block|inline)", body, re.M):
                blocks |= ends
    return frozenset(name for name in names - blocks if re.fullmatch(r"[\w-]+", name))


def atoms(source: str) -> list[Atom]:
    """The atoms of a template, in order."""
    result: list[Atom] = []
    spaced = broken = False
    for kind, text, name in _pieces(source):
        if kind is not None:
            after = result[-1].kind if result else None
            trimmed = after in (Kind.STATEMENT, Kind.COMMENT) and not spaced
            result.append(Atom(kind, text, name, spaced=spaced, broken=broken, trimmed=trimmed))
            spaced = broken = False
            continue
        broken = broken or "\n" in text
        # Jinja drops one line break after a statement, and all indentation is dropped before it reads.
        dropped = text.startswith("\n") and result and result[-1].kind in (Kind.STATEMENT, Kind.COMMENT)
        trims = bool(result) and result[-1].text.endswith(("-%}", "-}}"))
        spaced = spaced or not (trims or (dropped and "\n" not in text[1:]))
    return result


def _pieces(source: str) -> Iterator[tuple[Kind | None, str, str]]:
    """Each atom with its name, and between them whitespace without a kind."""
    place = 0
    while place < len(source):
        jinja, tag = _JINJA.match(source, place), _TAG.match(source, place)
        if jinja is not None:
            place = jinja.end()
            yield _of_jinja(jinja[0])
        elif source.startswith("<!--", place):
            end = source.index("-->", place) + 3
            yield Kind.COMMENT, source[place:end], ""
            place = end
        elif tag is not None:
            kind, place, end = _of_tag(source, tag)
            name = tag[2].lower()
            yield (
                kind,
                source[place:end] if kind is Kind.VERBATIM else _single_spaced(source[place:end]),
                name,
            )
            place = end
        else:
            word = re.compile(r"\s+|(?:(?!\{[{%#]|<[/!a-zA-Z])\S)+|\S").match(source, place)
            assert word is not None
            place = word.end()
            yield (None if word[0].isspace() else Kind.WORD), word[0], ""


def _of_jinja(text: str) -> tuple[Kind, str, str]:
    text = _single_spaced(text) if text[1] != "#" else " ".join(text.split())
    if text[1] != "%":
        return (Kind.VALUE if text[1] == "{" else Kind.COMMENT), text, ""
    name = re.sub(r"\W", " ", text).split()[0]
    return Kind.STATEMENT, text, "setblock" if name == "set" and "=" not in text else name


def _of_tag(source: str, tag: re.Match[str]) -> tuple[Kind, int, int]:
    """What a tag is, where it begins and ends; a verbatim element ends with its closing tag."""
    end = _tag_end(source, tag.end())
    text, name = source[tag.start() : end], tag[2].lower()
    if tag[1]:
        return Kind.CLOSE, tag.start(), end
    if name in _VOID or text.endswith("/>") or name.startswith("!"):
        return Kind.VOID, tag.start(), end
    classes = re.search(r'class="([^"]*)"', text)
    if name in _VERBATIM or (classes and _VERBATIM_CLASSES & set(classes[1].split())):
        depth = 1
        for each in re.compile(rf"<(/?){name}\b").finditer(source, end):
            depth += -1 if each[1] else 1
            if not depth:
                return Kind.VERBATIM, tag.start(), source.index(">", each.end()) + 1
    return Kind.OPEN, tag.start(), end


def _tag_end(source: str, place: int) -> int:
    """After the `>` of a tag, which may hold quotes and whatever Jinja has."""
    quote = ""
    while quote or source[place] != ">":
        jinja = _JINJA.match(source, place)
        if jinja is not None:
            place = jinja.end()
            continue
        if source[place] in "\"'" and quote in ("", source[place]):
            quote = "" if quote else source[place]
        place += 1
    return place + 1


def _single_spaced(text: str) -> str:
    """A tag or an expression on one line; what its quotes hold stays."""
    parts, place = [], 0
    while place < len(text):
        jinja = _JINJA.match(text, place) if place else None
        if jinja is not None and text[0] == "<":
            parts.append(_single_spaced(jinja[0]))
            place = jinja.end()
            continue
        space = re.compile(r"\s+").match(text, place)
        quoted = re.compile(QUOTED).match(text, place) if text[0] == "{" else None
        if space is not None or quoted is not None:
            match = space or quoted
            assert match is not None
            parts.append(" " if space is not None else match[0])
            place = match.end()
        else:
            parts.append(text[place])
            place += 1
    return "".join(parts)
