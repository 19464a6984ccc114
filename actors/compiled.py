"""Compiled modules that are built beside a running service, taken up by fresh decoder processes.

Kept by `svc.wiring.service`. Never builds anything, and never renews a process twice.
"""

from __future__ import annotations

import logging
from math import inf
from typing import Final

import trio

from actors.decoders import Decoders
from protocol.compiled import state, wanted

log = logging.getLogger(__name__)

#: How often they are looked for. A look reads fifteen files, in a thread: 2 ms.
LOOK_EVERY_S: Final = 5.0
#: A build takes a minute or two on a small machine; after this nobody builds any more.
LOOKS: Final = 360


def awaited() -> bool:
    """Whether this process would take compiled modules and has none."""
    return wanted() and not state()[0]


class CompiledModules:
    """Renews the decoder processes once all compiled modules are there."""

    def __init__(self, decoders: Decoders) -> None:
        self._decoders, self._looks = decoders, 0

    async def look(self) -> float:
        """Look once; returns the seconds until the next look."""
        compiled, sentence = await trio.to_thread.run_sync(state)
        if compiled:
            await self._decoders.renew()
            log.info("new decoder processes are ready; %s", sentence)
            return inf
        self._looks += 1
        return LOOK_EVERY_S if self._looks < LOOKS else inf
