"""The doctor's report of a project as text."""

from __future__ import annotations

import pytest

from svc.commands.report import print_attributes
from svc.store.reads.questions.attributes import AttributeField


def field(name: str, state: str, values: int | None, spans: int | None, reason: str | None) -> AttributeField:
    return AttributeField(name, state, "", values, spans, reason, may_promote=False)


def test_attributes_are_said_with_their_values_and_the_others_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_attributes(
        [
            field("environment", "convention", 2, None, None),
            field("region", "convention", 0, None, None),
            field("attr.shop.tier", "promoted", 1, 400, None),
            field("attr.shop.token", "seen", None, 1, "may hold secrets"),
            field("attr.shop.zone", "hidden", 3, 30, None),
        ]
    )
    assert capsys.readouterr().out == (
        "\nattributes that became fields\n  environment, 2 values\n  attr.shop.tier, 1 value\n"
        "\nother attributes\n  attr.shop.token, 1 span: may hold secrets\n"
        "  attr.shop.zone, 30 spans: hidden\n"
    )


def test_without_any_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_attributes([])
    assert capsys.readouterr().out == ""
