"""The pictures of the documentation show the pages as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from PIL import Image

from tests import pictures


@pytest.mark.release
def test_the_pictures_are_of_the_pages_of_today(chromium: Any) -> None:
    taken = json.loads(pictures.WORDS.read_text())
    assert taken == pictures.words_now(chromium), "take them anew: make pictures"


def test_each_picture_is_there_light_and_dark_and_no_other_is() -> None:
    files = {f"{name}-{theme}.png" for name in pictures.PICTURES for theme in pictures.THEMES}
    files |= {f"{pictures.TOUR_NAME}-{theme}.webp" for theme in pictures.THEMES}
    assert {path.name for path in pictures.FOLDER.iterdir()} == {*files, pictures.WORDS.name}
    readme = (pictures.FOLDER.parents[1] / "README.md").read_text()
    assert all(f"deploy/pages/{name}" in readme for name in files)


@pytest.mark.parametrize("theme", pictures.THEMES)
def test_the_tour_moves_through_all_its_steps_and_is_light(theme: str) -> None:
    path = pictures.FOLDER / f"{pictures.TOUR_NAME}-{theme}.webp"
    with Image.open(path) as picture:
        assert getattr(picture, "n_frames", 1) == len(pictures.TOUR)
        assert picture.size == pictures.TOUR_SHOWN_PX
    assert path.stat().st_size < 600_000
