"""Whether a runner for agents was started where the settings say that one is.

Called by whoever presses for a run. Asks no more once a runner has answered: one that is away for a while
finds the runs that wait for it.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from protocol.running import RunnerAway
from svc.application.addresses import runner_url
from svc.config.table import Settings
from svc.outside.runner import RunnerClient

#: A press is answered at once; what answers later is there for the next one.
ASK_S: Final = 3.0


@attrs.define(eq=False)
class NamedRunnerPresence:
    """Implements `RunnerPresence` for a runner that the operator names."""

    client: RunnerClient
    _answered: bool = False

    @classmethod
    def of(cls, settings: Settings) -> NamedRunnerPresence | None:
        """By the settings; None where the runner is a child of this process."""
        url = runner_url(settings)
        return None if url is None else cls(RunnerClient(url, settings.runner_key or ""))

    async def absent(self) -> str | None:
        """Its address while nothing has ever answered there."""
        if self._answered:
            return None
        with trio.move_on_after(ASK_S):
            self._answered = not isinstance(await self.client.health(), RunnerAway)
        return None if self._answered else self.client.url
