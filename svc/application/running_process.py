"""This process, as its pages and dead letters know it."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from actors.ports import BatchSink
from protocol.storage import Batch, Written
from svc.application.brokers import bring_home
from svc.config.table import Settings
from svc.store.spans.dead_letters import DeadLetterStore


@attrs.define(eq=False)
class RunningProcess:
    """Implements `Process` of the pages and `Replays` of the front.

    `report` and `ingest` are the health report and that component of it; `until_queryable` is the metrics'.
    """

    settings: Settings
    report: Callable[[], Awaitable[tuple[str, dict[str, Any]]]]
    ingest: Callable[[], dict[str, Any]]
    until_queryable: Callable[[], tuple[int, float | None, float | None]]
    sink: BatchSink
    letters: DeadLetterStore
    #: Spans that left the dead letters by hand since the start.
    gone_spans: int = 0

    async def health(self) -> dict[str, Any]:
        """What `/actuator/health` says."""
        return (await self.report())[1]

    def well(self) -> bool:
        """Whether ingest is up."""
        return bool(self.ingest()["status"] == "UP")

    def buried(self) -> int:
        """Spans among the dead letters, as far as this process knows."""
        dead_lettered = int(self.ingest()["details"]["dead_lettered"])
        return max(dead_lettered - self.gone_spans, 0)

    def disk_free(self) -> int | None:
        """Bytes that are free where the embedded database lies."""
        if not self.settings.embedded:
            return None
        return shutil.disk_usage(self.settings.data_dir).free

    async def write(self, batch: Batch) -> Written:
        """Store one batch as the drainers do."""
        return await self.sink.write([batch])

    def unburied(self, spans: int) -> None:
        """Count them out of what every page says of dead letters."""
        self.gone_spans += spans

    @property
    def broker(self) -> bool:
        """Whether dead letters lie in a broker until they are fetched."""
        return self.settings.spool_mode == "kafka"

    async def bring_home(self) -> int:
        """Move letters from the topic of broker mode to the table."""
        return await bring_home(self.settings, self.letters) if self.broker else 0
