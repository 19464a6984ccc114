"""Bodies and answers of masking: what a project has replaced in texts before they are stored."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MaskClassName = Literal["email", "iban", "card", "phone"]


class MaskPattern(msgspec.Struct, forbid_unknown_fields=True):
    """A pattern of a project's own, in RE2 syntax; what it matches becomes `[name]`."""

    name: Annotated[str, Meta(min_length=1, max_length=30)]
    pattern: Annotated[str, Meta(min_length=1, max_length=500)]


class MaskingChange(msgspec.Struct, forbid_unknown_fields=True):
    """All that is masked from now on; what is stored already stays as it is."""

    classes: list[MaskClassName]
    patterns: list[MaskPattern]


class MaskingShown(msgspec.Struct):
    """What is masked, and how often each was in the last thirty days."""

    classes: list[MaskClassName]
    patterns: list[MaskPattern]
    counts: dict[str, int]
