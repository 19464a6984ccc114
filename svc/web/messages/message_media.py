"""Pictures, sounds and files that messages hold: of what type, how long, and how a page shows them.

Pure; called for the parts of a page and by who sends such a file. What a message says of its type only
chooses from two closed lists of what browsers draw or play without running anything in it.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

#: So no SVG.
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SOUNDS: Final = frozenset(
    {"audio/wav", "audio/mpeg", "audio/ogg", "audio/webm", "audio/flac", "audio/mp4", "audio/aac"}
)
#: Other names of the same.
_ALSO: Final[Mapping[str, str]] = {
    "image/jpg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/m4a": "audio/mp4",
    "audio/opus": "audio/ogg",
}
#: A picture up to here is drawn with its message, a larger one when somebody opens it.
PICTURE_BYTES: Final = 1024 * 1024
_SUBTYPE: Final = re.compile(r"[a-z0-9]{1,10}", re.ASCII)

#: How a page shows it.
Shown = Literal["picture", "large picture", "sound", "file"]


@attrs.frozen
class Media:
    """What a part holds in itself: base64 of a file, or its text."""

    #: What the message calls it: image, audio, file.
    kind: str
    #: In lower case, without parameters; empty where nothing was said of it.
    mime_type: str
    data: str = attrs.field(repr=False)
    is_base64: bool = True

    @classmethod
    def of(cls, part: Mapping[str, Any]) -> Media | None:
        """Of a part in normal form; None where it holds no file, but names one or is of no known shape."""
        kind, mime_type = _named(part)
        data, uri = part.get("data"), part.get("uri")
        is_base64 = True
        if type(uri) is str and uri.startswith("data:"):
            header, _, data = uri.partition(",")
            is_base64 = header.endswith(";base64")
            mime_type = mime_type or _full_type(kind, header[len("data:") :])
        return cls(kind, mime_type, data, is_base64) if type(data) is str else None

    @property
    def title(self) -> str:
        """What a page calls it."""
        return _title(self.kind, self.mime_type)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        # Base64 holds three bytes in four letters.
        return (len(self.data) - self.data[-2:].count("=")) * 3 // 4 if self.is_base64 else len(self.data)

    @property
    def shown(self) -> Shown:
        """How a page shows it."""
        if not self.is_base64 or not self.data:
            return "file"
        if self.mime_type in PICTURES:
            return "picture" if self.size <= PICTURE_BYTES else "large picture"
        return "sound" if self.mime_type in SOUNDS else "file"

    @property
    def ending(self) -> str:
        """What the name of the file ends with."""
        subtype = self.mime_type.partition("/")[2]
        return subtype if _SUBTYPE.fullmatch(subtype) else "bin"

    def content(self) -> bytes:
        """The file; what is no base64 after all is taken as its text."""
        if self.is_base64:
            # Google's SDK writes the letters for addresses, and some leave out what pads the end.
            letters = "".join(self.data.split()).replace("-", "+").replace("_", "/").rstrip("=")
            try:
                return b64decode(letters + "=" * (-len(letters) % 4), validate=True)
            except (binascii.Error, ValueError):
                pass
        return self.data.encode("utf-8", "replace")


def media_title(part: Mapping[str, Any]) -> str:
    """What a page calls a part of this kind that holds no file."""
    return _title(*_named(part))


def _named(part: Mapping[str, Any]) -> tuple[str, str]:
    kind = str(part.get("media") or "file")
    return kind, _full_type(kind, str(part.get("mime_type") or ""))


def _title(kind: str, mime_type: str) -> str:
    return mime_type if mime_type.startswith(f"{kind}/") else f"{kind} {mime_type}".strip()


def _full_type(kind: str, mime_type: str) -> str:
    """`png` of an image is `image/png`: some say only the format."""
    name = mime_type.partition(";")[0].strip().lower()
    if name and "/" not in name:
        name = f"{kind}/{name}"
    return _ALSO.get(name, name)
