"""What an address looks like."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.rest.accounts import email_key, email_written
from svc.domain.accounts.lookalike_addresses import _PAIRS, likenesses


def test_every_pair_is_a_letter_of_another_alphabet_and_one_of_ours() -> None:
    for letters, looks in _PAIRS:
        assert len(letters) == len(looks) == len(set(letters))
        for letter, look in zip(letters, looks, strict=True):
            assert unicodedata.normalize("NFKC", letter) == letter, f"{letter!r} is never met"
            assert look.isascii()
            assert letter.isupper() == look.isupper() or letter in "\u04c0", (letter, look)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ada", "\u0430d\u0430"),
        ("ada", "\uff41da"),
        ("paypal", "\u0440\u0430\u0443\u0440\u0430l"),
        ("Helen", "\u0397elen"),
        ("victor", "\u039dictor"),  # shown as Nictor, audited as a small nu, which looks like v
        ("ian", "\u04c0an"),
        ("lan", "\u04cfan"),
        ("ivan", "i\u0307van"),
    ],
)
def test_what_cannot_be_told_apart_shares_a_likeness(one: str, other: str) -> None:
    assert set(likenesses(one)) & set(likenesses(other))


@pytest.mark.parametrize(
    ("one", "other"), [("ol1", "oll"), ("jose", "jos\u00e9"), ("bob", "b0b"), ("rn", "m")]
)
def test_what_one_alphabet_tells_apart_does_not(one: str, other: str) -> None:
    assert not set(likenesses(one)) & set(likenesses(other))


@given(st.from_regex(r"[a-zA-Z0-9._+-]{1,20}@[a-z]{1,9}\.org", fullmatch=True))
def test_a_plain_address_looks_like_itself_alone(email: str) -> None:
    assert likenesses(email) == [email.lower()]


@given(st.text(max_size=20), st.sampled_from(["@example.org", "\uff20example.org"]))
def test_a_compared_address_is_compared_as_itself(local: str, rest: str) -> None:
    key = email_key(local + rest)
    if key is not None:
        assert email_key(key) == key
        assert email_key(email_written(local + rest)) == key
        assert not any(unicodedata.category(letter) in ("Cf", "Cc", "Zs", "Cs") for letter in key)
