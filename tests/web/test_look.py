"""The tokens of the look: every text can be read on every ground, in both themes."""

from __future__ import annotations

import re

import pytest

from svc.web.shell.assets import STATIC

TOKENS = {
    name: (light, dark)
    for name, light, dark in re.findall(
        r"--(\w[\w-]*): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", (STATIC / "look.css").read_text()
    )
}
TEXTS = ("ink", "soft", "accent", "ok", "warn", "bad")
GROUNDS = ("paper", "raised", "sunk")
DRAWN = ("edge", "llm", "tool", "find", "agent", "other", "ok", "warn", "bad", "accent")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS)
def test_text_is_readable_on_every_ground(theme: int, ground: str) -> None:
    for text in TEXTS:
        assert contrast(TOKENS[text][theme], TOKENS[ground][theme]) >= 5.3, text


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS)
def test_bars_and_edges_stand_out_from_every_ground(theme: int, ground: str) -> None:
    for drawn in DRAWN:
        assert contrast(TOKENS[drawn][theme], TOKENS[ground][theme]) >= 3.1, drawn


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_notes_and_chosen_rows_keep_their_text_readable(theme: int) -> None:
    for text, ground in (
        *(("ink", wash) for wash in ("wash", "bad-wash", "warn-wash", "ok-wash")),
        *(("soft", wash) for wash in ("wash", "bad-wash", "warn-wash", "ok-wash")),
        ("accent", "wash"),
        ("raised", "accent"),
        ("raised", "bad"),
        ("raised", "llm"),
        ("raised", "other"),
    ):
        assert contrast(TOKENS[text][theme], TOKENS[ground][theme]) >= 4.4, (text, ground)
