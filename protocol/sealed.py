"""What opening a sealed value can come to."""

from __future__ import annotations

import attrs


@attrs.frozen
class Lost:
    """A value that cannot be opened, and why, for the operator."""

    reason: str
