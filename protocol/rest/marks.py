"""Bodies and answers of `{p}/marks`. Shapes only."""

from __future__ import annotations

import msgspec


class MarkShown(msgspec.Struct):
    """A mark in a project. `precision` is null where it was not measured."""

    name: str
    label: str
    description: str
    precision: float | None
    enabled: bool
    muted: bool


class MarkChange(msgspec.Struct, forbid_unknown_fields=True):
    """Whether a mark is stated, and whether a rise of it is kept from being reported."""

    enabled: bool | None = None
    muted: bool | None = None
