"""Templates are laid out by one tool, in lines of 120 columns, and a page shows nothing of it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import DictLoader, Environment, TemplateSyntaxError

from svc.web.shell.render import BLOCKS, ROOMS, without_layout
from tests.web.layout import printing
from tests.web.layout.printing import COLUMNS, laid_out

TEMPLATES = sorted(ROOMS.rglob("*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_each_template_is_laid_out(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert laid_out(source) == source, f"{path.name}: `make format` lays it out"
    assert [line for line in source.splitlines() if len(line) > COLUMNS] == []


def test_a_template_that_is_not_laid_out_is_noticed() -> None:
    for source in ("<ul>\n<li>one</li></ul>\n", f"<p>{'word ' * 40}</p>\n"):
        assert laid_out(source) != source


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<ul><li>one</li></ul>", "<ul><li>one</li></ul>"),
        (
            "<ul>\n<li>one</li>{% if two %}<li>two</li>{% endif %}</ul>",
            "<ul>\n  <li>one</li>\n  {% if two %}<li>two</li>{% endif %}\n</ul>",
        ),
        (
            "{% if one %}\n<p>one</p>{% else %}<p>none</p>{% endif %}",
            "{% if one %}\n  <p>one</p>\n{% else %}\n  <p>none</p>\n{% endif %}",
        ),
        # Between two inline elements a line break would show.
        (
            f"<p>a<b>{'b' * 70}</b><i>{'i' * 60}</i>c</p>",
            f"<p>\n  a<b>{'b' * 70}</b><i>{'i' * 60}</i>c\n</p>",
        ),
        (
            f"<p><b>{'b' * 70}</b> <i>{'i' * 60}</i></p>",
            f"<p>\n  <b>{'b' * 70}</b>\n  <i>{'i' * 60}</i>\n</p>",
        ),
        # Unless their parent places them, as the style says.
        (
            f"<p class='row'><b>{'b' * 70}</b><i>{'i' * 60}</i></p>".replace("'", '"'),
            f"<p class='row'>\n  <b>{'b' * 70}</b>\n  <i>{'i' * 60}</i>\n</p>".replace("'", '"'),
        ),
        # Jinja drops a line break after a statement, so it cannot stand for a space.
        (
            f"<p>{'a' * 90} b{{% if one %}} {'c' * 30}{{% endif %}}d</p>",
            f"<p>\n  {'a' * 90}\n  b{{% if one %}} {'c' * 30}{{% endif %}}d\n</p>",
        ),
        ("<pre>one\n  two</pre>", "<pre>one\n  two</pre>"),
        (
            f'<input name="{"n" * 60}" value="{"v" * 60}">',
            f'<input name="{"n" * 60}"\n    value="{"v" * 60}">',
        ),
    ],
)
def test_a_line_break_stands_only_where_it_shows_nothing(source: str, expected: str) -> None:
    assert laid_out(source + "\n") == expected + "\n"


class _Shown(HTMLParser):
    """What a browser makes of a document: its tags, and its text with spaces folded as it folds them."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parts.append(f"<{tag} {attrs}>")

    def handle_endtag(self, tag: str) -> None:
        self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.parts.append(re.sub(r"\s+", " ", data))

    @classmethod
    def of(cls, html: str) -> list[str]:
        parser = cls()
        parser.feed(html)
        parser.close()
        parts = _folded(parser.parts, str.lstrip, str.endswith)
        return [part for part in reversed(_folded(parts[::-1], str.rstrip, str.startswith)) if part]


def _folded(parts: list[str], strip: object, borders: object) -> list[str]:
    """A space goes that follows another one or the edge of a block; inline tags between change nothing."""
    result, free = [], True
    for part in parts:
        tag = re.match(r"</?(\w+)", part)
        if tag is not None:
            free = free or tag[1] in BLOCKS
            result.append(part)
            continue
        text = strip(part, " ") if free else part  # type: ignore[operator]
        free = borders(text, " ") if text else free  # type: ignore[operator]
        result.append(text)
    return result


_SPACES = st.sampled_from(["", "", " ", "\n"])
_LEAVES = st.sampled_from(
    ["a", "word", "longer-word", "{{ one }}", "{{ two }}", "{% set x = 1 %}", "{# no #}"]
)


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    parts = st.lists(st.tuples(_SPACES, inner), max_size=4).map(lambda them: "".join(a + b for a, b in them))
    body = st.tuples(parts, _SPACES).map("".join)
    return st.one_of(
        st.tuples(st.sampled_from(["b", "a", "span", "div", "li", "td"]), body).map(
            lambda it: f"<{it[0]}>{it[1]}</{it[0]}>"
        ),
        body.map(lambda it: f"{{% if one %}}{it}{{% endif %}}"),
        st.tuples(body, body).map(lambda it: f"{{% if two %}}{it[0]}{{% else %}}{it[1]}{{% endif %}}"),
        body.map(lambda it: f"{{% for x in many %}}{it}{{% endfor %}}"),
    )


_TEMPLATES = st.lists(st.tuples(_SPACES, st.recursive(_LEAVES, _wrapped, max_leaves=12)), max_size=5).map(
    lambda them: "".join(a + b for a, b in them) + "\n"
)


def _rendered(source: str, *, one: str, two: str, many: int) -> list[str]:
    environment = Environment(loader=DictLoader({"it": source}), trim_blocks=True, lstrip_blocks=True)
    return _Shown.of(environment.get_template("it").render(one=one, two=two, many=range(many)))


@given(_TEMPLATES, st.sampled_from(["", "x"]), st.sampled_from(["", "y"]), st.integers(0, 2))
def test_layout_changes_nothing_that_a_page_shows(source: str, one: str, two: str, many: int) -> None:
    with mock.patch.object(printing, "COLUMNS", 24):
        text = laid_out(source)
        assert laid_out(text) == text
    shown = _rendered(source, one=one, two=two, many=many)
    assert _rendered(without_layout(source), one=one, two=two, many=many) == shown
    assert _rendered(without_layout(text), one=one, two=two, many=many) == shown


def test_an_error_names_its_line_in_the_file() -> None:
    source = "<ul>\n  <li>one</li>\n  {# two\n     <li> #}\n  <li>{{ three }</li>\n</ul>\n"
    assert without_layout(source).count("\n") == source.count("\n")
    with pytest.raises(TemplateSyntaxError) as raised:
        Environment(loader=DictLoader({"it": without_layout(source)})).get_template("it")
    assert raised.value.lineno == 5
