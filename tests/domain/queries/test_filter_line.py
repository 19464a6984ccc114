"""A line of filters is read as it was written, whatever a value holds; a kept question likewise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.queries.filter_line import as_token, can_be_typed, read_line
from svc.domain.queries.kept_question import KeptQuestion

names = st.from_regex(r"[a-z_]+", fullmatch=True) | st.from_regex(r'attr\.[^\s:"]{1,120}', fullmatch=True)
# Forms take no surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.lists(st.tuples(names, texts | st.none()), max_size=5))
def test_a_line_is_read_as_it_was_written(filters: list[tuple[str, str | None]]) -> None:
    line = " ".join(as_token(name, value) for name, value in filters)
    tokens = read_line(line)
    assert [(token.name, token.value) for token in tokens] == filters
    assert " ".join(token.text for token in tokens) == line


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (None, "f:null"),
        ("null", 'f:"null"'),
        ("", 'f:""'),
        (True, "f:true"),
        (7, "f:7"),
        ("a:b", "f:a:b"),
        ('say "u"', r'f:"say \"u\""'),
        ("back\\slash", r'f:"back\\slash"'),
    ],
)
def test_a_value_is_written_in_one_way(value: str | int | None, token: str) -> None:
    assert as_token("f", value) == token


def test_what_is_no_field_is_a_text() -> None:
    tokens = read_line('refund name:chat "two words" UPPER:x')
    assert [token.text for token in tokens if not token.name] == ["refund", "two words", "UPPER:x"]
    typed = [
        name for name in ("kind", "attr.a", "attr.a b", "attr.a:b", "attr.", "Kind") if can_be_typed(name)
    ]
    assert typed == ["kind", "attr.a"]


@given(st.builds(KeptQuestion, texts, texts, texts, texts, texts, texts, texts))
def test_a_question_is_read_as_it_was_kept(question: KeptQuestion) -> None:
    assert KeptQuestion.read(question.text) == question
