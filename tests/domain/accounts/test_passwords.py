"""The kept list of common passwords: what is on it, whatever the case; where it comes from; what is not."""

from __future__ import annotations

from importlib.resources import files

import pytest

from protocol.rest.accounts import PASSWORD_MIN
from svc.domain.accounts.passwords import common_passwords, is_common


@pytest.mark.parametrize(
    "password", ["password", "PassWord", "PASSWORD1", " password ", "qwertyuiop", "iloveyou"]
)
def test_a_common_password_is_known_in_any_letter_case(password: str) -> None:
    assert is_common(password)


@pytest.mark.parametrize("password", ["correct horse battery", "# Source: the list", "", "# "])
def test_any_other_text_is_not(password: str) -> None:
    assert not is_common(password)


def test_the_list_holds_what_length_does_not_refuse_and_says_where_it_is_from() -> None:
    lines = (
        files("svc.domain.accounts").joinpath("common_passwords.txt").read_text(encoding="utf-8").splitlines()
    )
    remarks, passwords = lines[:5], lines[5:]
    assert all(line.startswith("# ") for line in remarks)
    assert any("https://" in line for line in remarks)
    assert remarks[-1].startswith("# Taken: ")
    assert passwords == sorted(set(passwords))
    assert len(passwords) == len(common_passwords()) > 8_000
    assert all(len(password) >= PASSWORD_MIN and password == password.lower() for password in passwords)
