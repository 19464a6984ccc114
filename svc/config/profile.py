"""What a machine with little memory changes: the defaults of some settings.

Owns the table of the small profile. Called once, when the settings are read, and by the documentation. Never
changes what is set; without the profile each default is the contract's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

_MIB: Final = 1024 * 1024
PROFILE: Final = "SVC_PROFILE"

#: What the small profile plans with, and what its embedded database is sized by.
SMALL_BYTES: Final = 512 * _MIB


@attrs.frozen
class SmallDefault:
    """A setting that is another one in the small profile, and why."""

    name: str
    value: str
    reason: str


SMALL: Final = (
    SmallDefault("SVC_INGEST_DECODERS", "0", "each process takes 60 MB under load; the main process decodes"),
    SmallDefault(
        "SVC_INGEST_SPOOL_MAX_BYTES", str(8 * _MIB), "what waits for the database is held in memory"
    ),
    SmallDefault("SVC_INGEST_MAX_BODY_BYTES", str(16 * _MIB), "a body is held while it is read"),
)


def with_profile(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the defaults of its profile filled in."""
    filled = dict(env)
    if env.get(PROFILE, "").strip() == "small":
        filled |= {default.name: default.value for default in SMALL if not env.get(default.name, "").strip()}
    return filled
