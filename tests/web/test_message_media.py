"""Files in messages: how they are shown follows from two closed lists, and each comes out as it went in."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.web.messages.message_media import PICTURE_BYTES, Media, media_title


def of(**part: str) -> Media:
    media = Media.of({"type": "media", **part})
    assert media is not None
    return media


@pytest.mark.parametrize(
    ("part", "mime_type", "title", "shown"),
    [
        ({"media": "image", "mime_type": "image/png"}, "image/png", "image/png", "picture"),
        ({"media": "image", "mime_type": "png"}, "image/png", "image/png", "picture"),
        ({"media": "image", "mime_type": "image/jpg"}, "image/jpeg", "image/jpeg", "picture"),
        ({"media": "image", "mime_type": "IMAGE/PNG; q=1"}, "image/png", "image/png", "picture"),
        ({"media": "audio", "mime_type": "wav"}, "audio/wav", "audio/wav", "sound"),
        ({"media": "audio", "mime_type": "mp3"}, "audio/mpeg", "audio/mpeg", "sound"),
        ({"media": "blob", "mime_type": "audio/x-wav"}, "audio/wav", "blob audio/wav", "sound"),
        ({"media": "image", "mime_type": "image/svg+xml"}, "image/svg+xml", "image/svg+xml", "file"),
        (
            {"media": "file", "mime_type": "application/pdf"},
            "application/pdf",
            "file application/pdf",
            "file",
        ),
        ({"media": "image"}, "", "image", "file"),
        ({}, "", "file", "file"),
    ],
)
def test_what_is_said_of_a_file_decides_how_it_is_shown(
    part: dict[str, str], mime_type: str, title: str, shown: str
) -> None:
    media = of(data="AAAA", **part)
    assert (media.mime_type, media.title, media.shown) == (mime_type, title, shown)


def test_a_picture_of_more_than_a_megabyte_waits_until_somebody_opens_it() -> None:
    letters = b64encode(bytes(PICTURE_BYTES)).decode()
    assert of(media="image", mime_type="image/png", data=letters).shown == "picture"
    letters = b64encode(bytes(PICTURE_BYTES + 1)).decode()
    assert of(media="image", mime_type="image/png", data=letters).shown == "large picture"


@given(st.binary(max_size=200))
def test_a_file_comes_out_as_it_went_in_however_its_letters_were_written(content: bytes) -> None:
    plain = b64encode(content).decode()
    lines = "\r\n".join(plain[at : at + 76] for at in range(0, len(plain), 76))
    for letters in (plain, plain.rstrip("="), urlsafe_b64encode(content).decode(), lines):
        assert of(data=letters).content() == content
    address = of(uri=f"data:image/png;base64,{plain}")
    assert (address.content(), address.mime_type) == (content, "image/png")


@given(st.text(max_size=60))
def test_what_is_no_base64_is_taken_as_its_text(text: str) -> None:
    media = of(data="." + text)
    assert media.content() == ("." + text).encode("utf-8", "replace")
    assert of(uri=f"data:text/plain,{text}").content() == text.encode("utf-8", "replace")


def test_a_file_is_named_by_its_type() -> None:
    assert of(mime_type="application/pdf", data="").ending == "pdf"
    assert of(mime_type="image/svg+xml", data="").ending == "bin"
    assert of(data="").ending == "bin"


def test_a_part_that_holds_no_file_is_none() -> None:
    assert Media.of({"type": "media", "media": "image", "uri": "https://elsewhere.example/a.png"}) is None
    assert media_title({"media": "image", "mime_type": "png", "uri": "x"}) == "image/png"
