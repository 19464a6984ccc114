"""What the rounds of detection say to whoever runs them. Shapes only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

#: The traces that a detector raised at are counted under its name behind this.
FAILED: Final = "failed."


@attrs.frozen
class Tallied:
    """One round of tallying a project.

    `traces` were tallied, of them `again` such as had been tallied before; `spans` is what they have.
    `left_out` counts observations for which there was no bucket left, `unread` payloads that were beyond the
    bounds of a round, `failures` the traces at which a detector raised, by its name. `more` says that others
    are waiting, `held` is false when another replica has the project.
    """

    traces: int = 0
    spans: int = 0
    again: int = 0
    left_out: int = 0
    unread: int = 0
    failures: Mapping[str, int] = attrs.field(factory=dict)
    more: bool = False
    held: bool = True
