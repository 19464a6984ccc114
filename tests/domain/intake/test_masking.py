"""What is masked and what is not, byte for byte, wherever a span holds a text."""

from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.otlp.reading import read_clean, walk
from protocol.storage import Batch
from svc.domain.intake.batches import decoder
from svc.domain.intake.masking import (
    CLASSES,
    PATTERNS_MAX,
    BadMask,
    Masker,
    MaskRule,
    check_rules,
    is_card,
    is_iban,
)
from svc.domain.pricing.prices import PriceBook
from tests.store.spans.test_writing import NOW, one
from tests.wire import event, link, request

ALL = [MaskRule(name) for name in CLASSES]


def masker(*rules: MaskRule) -> Masker:
    made = Masker()
    made.adopt({1: rules or ALL})
    return made


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("write to mara.k+x@mail.example.co.uk.", "write to [email]."),
        ('{"to": "mara@example.com"}', '{"to": "[email]"}'),
        (r"first\nmara@example.com\nlast", r"first\n[email]\nlast"),
        (r"caf\u00e9mara@example.com", r"caf\u00e9[email]"),
        ("card 4111 1111 1111 1111 please", "card [card] please"),
        ("amex 3782-822463-10005", "amex [card]"),
        ("IBAN DE89 3704 0044 0532 0130 00, thanks", "IBAN [iban], thanks"),
        ("GB82WEST12345698765432", "[iban]"),
        ("call +49 (0)30 901820-55 or 0049 30 9018200", "call [phone] or [phone]"),
        ("call (555) 010-9999 now", "call [phone] now"),
        ("030 / 9018 2055", "030 / 9018 2055"),
    ],
)
def test_what_is_of_a_class_is_masked(text: str, masked: str) -> None:
    assert masker().masked(1, text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",  # Luhn says no.
        "1732587869123456789",  # Nanoseconds.
        "DE89 3704 1144 1532 1130 02",
        "2026-11-26T02:24:54.123456Z",
        "5b8efff798038103d269b633813fc60c",
        "version 1.2.3, 1000000 tokens in 250 ms",
        "user@localhost",
        "10.0.0.255:8080",
        "6666666666666666",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert masker().masked(1, text) == text


def test_every_text_of_a_span_is_masked_and_nothing_else_changes() -> None:
    word = "mara@example.com"
    inner = {"to": [word, {"cc": f"<{word}>"}], "n": 1, "blob": word.encode()}
    span = one(
        1,
        name=f"mail {word}",
        attributes={"gen_ai.input.messages": msgspec.json.encode([{"content": word}]).decode(), "a": inner},
        status_message=f"nobody is {word}",
        status_code=2,
        events=[event(f"e {word}", {"exception.message": word})],
        links=[link(bytes(15) + b"\1", bytes(7) + b"\1", {"why": word})],
    )
    sent = request(span, one(2, name="plain"), resource={"host.owner": word})
    opened = read_clean(sent.SerializeToString())
    made = masker()
    made.mask(1, opened)
    first, second = walk(opened)
    assert first.name == "mail [email]"
    assert first.status_message == "nobody is [email]"
    assert first.attributes["a"] == {"to": ["[email]", {"cc": "<[email]>"}], "n": 1, "blob": word.encode()}
    assert first.attributes["gen_ai.input.messages"] == '[{"content":"[email]"}]'
    assert (first.events[0].name, first.events[0].attributes) == (
        "e [email]",
        {"exception.message": "[email]"},
    )
    assert first.links[0].attributes == {"why": "[email]"}
    assert first.resource.attributes == {"host.owner": "[email]"}
    assert first.raw.count(word.encode()) == 1  # The bytes.
    assert second.raw == one(2, name="plain").SerializeToString()
    assert made.take() == {(1, "email"): 9}
    assert made.take() == {}


def test_a_decoder_masks_before_anything_is_made_of_a_span() -> None:
    body = request(
        one(1, attributes={"user.id": "mara@example.com", "input.value": "KD-123456"})
    ).SerializeToString()
    rules = masker(MaskRule("email"), MaskRule("customer", "KD-[0-9]{6}"))
    for project_id, user in ((1, "[email]"), (2, "mara@example.com")):
        decode = decoder(PriceBook(), masker=rules)
        (stored,) = chain.from_iterable(decode(Batch(project_id, body, 1, NOW, 0.0)))
        assert stored.row.user_id == user
        whole = b"".join(stored.payload.literals)
        assert (b"mara@" in whole, b"KD-123456" in whole) == ((project_id == 2,) * 2)


@pytest.mark.parametrize(
    "rules",
    [
        [MaskRule("nonsense")],
        [MaskRule("email"), MaskRule("email")],
        [MaskRule("email", "x")],
        [MaskRule("Bad name", "x")],
        [MaskRule("a", "(")],
        [MaskRule("a", "x*")],
        [MaskRule("a", "x" * 501)],
        [MaskRule("a", "((a{100}){100}){100}")],
        [MaskRule("a", r"(a)\1")],
        [MaskRule(f"p{n}", "x") for n in range(PATTERNS_MAX + 1)],
    ],
)
def test_rules_that_cannot_be_are_refused(rules: list[MaskRule]) -> None:
    with pytest.raises(BadMask):
        check_rules(rules)


@given(st.integers(0, 10**14))
def test_of_ten_last_digits_one_makes_a_card(number: int) -> None:
    start = f"4{number:014d}"
    assert sum(is_card(f"{start}{digit}") for digit in range(10)) == (1 if len(start) == 15 else 0)


@given(st.text(alphabet="ABC0123456789", min_size=11, max_size=11))
def test_an_account_is_told_by_its_checksum(account: str) -> None:
    remainder = int("".join(str(int(char, 36)) for char in f"{account}DE00")) % 97
    number = f"DE{98 - remainder:02d}{account}"
    assert is_iban(number)
    wrong = f"DE{(98 - remainder) % 97 + 1:02d}{account}"
    assert wrong == number or not is_iban(wrong)


@given(st.text(max_size=200))
def test_what_holds_nothing_comes_back_as_the_same(text: str) -> None:
    made = masker()
    masked = made.masked(1, text)
    assert masked == text or made.take()


def test_rules_of_one_project_are_not_anothers() -> None:
    word: Any = "mara@example.com"
    assert masker().masked(2, word) == word
