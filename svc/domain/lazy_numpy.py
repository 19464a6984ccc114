"""numpy, loaded when something of it is first used.

Imported in place of it by whatever the main process loads with itself: texts, charts and alerts use a little
of it now and then. It takes 6 MB and 50 to 100 ms of an idle core, which a service at rest, a start and most
commands never need. Who is about to use it calls `load` in a thread before, as the door does for every
reader: on the event loop it would hold all others for that long. Modules that nothing loads before they are
needed import numpy itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["is_loaded", "load", "np"]


class _Lazy:
    """Has what numpy has, all of it once any of it was asked for. Other threads wait for the import."""

    def __getattr__(self, name: str) -> Any:
        numpy = import_module("numpy")
        self.__dict__.update(vars(numpy))
        return getattr(numpy, name)


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Lazy()


def is_loaded() -> bool:
    """Whether nobody waits for it any more."""
    return bool(vars(np))


def load() -> None:
    """Load it now, where it is not."""
    _ = np.ndarray
