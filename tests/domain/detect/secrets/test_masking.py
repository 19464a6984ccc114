"""Laws of hiding: a secret is in nothing that is shown, however it was written, and the rest is as it was."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import pytest

from svc.domain.detect.secrets.masking import masked_head, masked_value
from tests.cost import least, taken_s
from tests.domain.detect.secrets.test_secrets import B64, POSITIVES, some


def nested(value: Any, depth: int) -> Any:
    """The value as JSON in a text in JSON, and so on."""
    for _ in range(depth):
        value = json.dumps({"said": value, "line": "a\nb"})
    return value


@pytest.mark.parametrize("form", POSITIVES)
def test_a_token_of_every_form_is_hidden_wherever_in_a_value_it_stands(form: str) -> None:
    text, token = POSITIVES[form]()
    for value in (
        text,
        [text],
        {"a": {"b": [1, None, text]}},
        {"a": f"first\n{text}\nlast"},
        {text: 1},
        nested(text, 1),
        {"messages": nested(f"first\n{text}", 1)},
        {"messages": nested(text, 2)},
        [{"events": [{"attributes": {"message": nested(text, 3)}}]}],
    ):
        shown = masked_value(value)
        assert type(shown) is type(value)
        for part in token.split("\n"):
            if len(part) >= 16:
                assert part not in msgspec.json.encode(shown).decode().replace("\\", ""), value


@pytest.mark.parametrize(
    "value",
    [
        {"password": some(24)},
        {"headers": {"Authorization": "Bearer " + some(30)}},
        {"env": {"AWS_SECRET_ACCESS_KEY": some(40, B64)}},
        {"note": "line\none", "api_key": some(24)},
        {"arguments": json.dumps({"login": {"password": some(24)}, "text": "a\nb"})},
        {"outer": json.dumps({"inner": json.dumps({"db_password": some(24)})})},
        [{"name": "aws_secret_access_key", "value": some(40, B64)}],
    ],
)
def test_a_value_is_hidden_where_only_its_name_tells_what_it_is(value: Any) -> None:
    token = max(msgspec.json.encode(value).decode().replace("\\", "").split('"'), key=len)
    token = token.removeprefix("Bearer ")
    assert len(token) >= 24
    shown = masked_value(value)
    assert token not in msgspec.json.encode(shown).decode().replace("\\", "")
    assert type(shown) is type(value)


def test_a_private_key_is_hidden_to_its_last_line() -> None:
    lines = [some(64, B64) for _ in range(20)] + [some(30, B64) + "=="]
    label = "RSA PRIV" + "ATE KEY"
    key = "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])
    for value in (f"here: {key}\nand so on", {"pem": f"here: {key}\nand so on"}, json.dumps({"pem": key})):
        shown = msgspec.json.encode(masked_value(value)).decode()
        assert not any(line in shown for line in lines)
    assert masked_value(f"here: {key}\nand so on").endswith("]\nand so on")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        1.5,
        "",
        "plain text",
        {},
        [],
        {"a": [1, 2.5, None, {"b": "c\nd"}], "text": '{"a": "b\\n", "n": 1e3}'},
        {"usage": {"input_tokens": 1234}, "max_tokens": 4096, "token_type": "bearer", "secret": ""},
        [{"role": "user", "content": "what is a token, and what is a password?"}],
    ],
)
def test_what_holds_no_secret_is_shown_as_it_is(value: Any) -> None:
    assert masked_value(value) == value


def test_a_json_text_without_a_secret_keeps_its_spaces() -> None:
    said = '{ "a":  "b\\n",\n  "numbers": [1.0, 2e3] }'
    assert masked_value({"said": said}) == {"said": said}


@pytest.mark.parametrize("form", POSITIVES)
def test_a_token_that_a_preview_cuts_is_hidden_wherever_it_is_cut(form: str) -> None:
    text, token = POSITIVES[form]()
    if "\n" in token:
        token = token.split("\n")[-1]
    start = text.index(token)
    for kept in range(12, len(token), 3):
        head = "x " * 300 + text[: start + kept]
        shown = masked_head(head[-200:], 200)
        assert shown is not None
        assert token[: min(kept, 12)] not in shown, kept


def test_a_cut_token_that_reads_like_a_word_is_hidden_where_its_form_says_whose_it_is() -> None:
    for token in ("xai-wtjfpkeh", "sk-ant-api", "pplx-abcdefgh"):
        shown = masked_head(("x " * 200 + token)[-200:], 200)
        assert shown is not None
        assert shown.endswith(token[:4] + "…")


def test_the_end_of_a_cut_text_stays_when_it_is_a_word_and_that_of_a_whole_one_always() -> None:
    for ending in (
        "understanding",
        "state-of-the-art",
        "Constantinople.",
        "und so weiter",
        "日本語の文章です",
    ):
        assert masked_head(("y " * 200 + ending)[-200:], 200) == ("y " * 200 + ending)[-200:]
    assert masked_head("order A1B2C3D4E5", 200) == "order A1B2C3D4E5"
    assert masked_head(None, 200) is None
    assert masked_head("", 200) == ""


def test_hiding_costs_what_is_shown_and_no_more() -> None:
    """Eight mebibytes of what is worst: small texts, and tokens that are all but secrets."""
    small = {"said": "\\" + json.dumps(["abcdefghijklmnopqr"] * 400_000)}
    hostile = {"said": ("gh" + "p_" + "a" * 36 + " \n") * 200_000}
    for worst in (partial(masked_value, small), partial(masked_value, hostile)):
        assert least(partial(taken_s, worst), below=10) < 10
