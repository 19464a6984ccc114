"""What a machine with little memory changes: the defaults of some settings.

Owns the choice of the profile and its table. Called once, when the settings are read, and by the
documentation. A setting that is set is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from protocol.memory import usable_memory_bytes

_MIB: Final = 1024 * 1024
PROFILE: Final = "SVC_PROFILE"

#: With at most this much memory the profile is small unless it is set. A machine sold with 1 GB has less.
SMALL_MACHINE_BYTES: Final = 1024 * _MIB
#: What the small profile is made for, and what its embedded database is sized by.
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


def with_profile(
    env: Mapping[str, str], memory_bytes: Callable[[], int] = usable_memory_bytes
) -> dict[str, str]:
    """The environment with the profile chosen and its defaults filled in.

    A value of `SVC_PROFILE` that means nothing is left to whoever reads the settings.
    """
    chosen = env.get(PROFILE, "").strip() or "auto"
    if chosen == "auto":
        chosen = "small" if memory_bytes() <= SMALL_MACHINE_BYTES else "standard"
    filled = {**env, PROFILE: chosen}
    if chosen == "small":
        for default in SMALL:
            if not env.get(default.name, "").strip():
                filled[default.name] = default.value
    return filled
