"""The judges that ask an encoder: texts in, scores out, a firing for each that is high.

Owns the order of a round: take some traces, ask about them, write what came of it. A score stands for itself:
there is no finding and no case of it. Nobody is asked for a project that has switched the detector off; its
traces are passed over. Never retries within a round: a service that is busy or away is a state that health
shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime

import attrs

from protocol.detection import Firing
from protocol.storage import Outage
from svc.detecting.detector_runner import SettingsStore
from svc.domain.detect.detectors.base import Detector
from svc.domain.detect.detectors.encoded import ENCODED
from svc.domain.quantities import percent
from svc.outside.encoder import Encoder, EncoderBusy, Head
from svc.outside.http import Unreached
from svc.store.detection.judging.due import DueStore
from svc.store.detection.judging.encoding import EncodeBatch, EncodeStore


@attrs.define(eq=False)
class EncodedJudge:
    """Asks about one detector's head. `counts` go up by traces `asked` about and `fired`."""

    detector: Detector
    encoder: Encoder
    store: EncodeStore
    due: DueStore
    settings: SettingsStore
    now: Callable[[], datetime]
    interval_s: float
    counts: Counter[str] = attrs.field(factory=Counter)

    async def round(self) -> float:
        """Ask about what waits. Returns the seconds to rest; raises `Outage` when the service is away."""
        unfinished = False
        for project_id in await self.store.waiting(self.detector.name):
            if not await self.due.still(project_id, self.detector.name):
                continue
            try:
                unfinished |= await self._project(project_id)
            except EncoderBusy as busy:
                return busy.rest_s
            except Unreached as unreached:
                raise Outage(f"the encoder {unreached}") from None
            finally:
                await self.due.give_up(project_id, self.detector.name, None)
        return 0.0 if unfinished else self.interval_s

    async def _project(self, project_id: int) -> bool:
        """One round of a project. Whether more may wait."""
        name = self.detector.name
        tuned = (await self.settings.of(project_id))[name]
        asking = await self.store.take(project_id, name)
        firings = await self._classify(asking, tuned.tuning["score"]) if tuned.enabled else []
        await self.store.done(project_id, name, asking.places, firings, self.now())
        self.counts["asked"] += len(asking.samples) if tuned.enabled else 0
        self.counts["fired"] += len(firings)
        return bool(asking.places)

    async def _classify(self, asking: EncodeBatch, least: float) -> list[Firing]:
        if not asking.samples:
            return []
        head: Head = "frustration" if self.detector.name == "frustration" else "groundedness"
        scores = await self.encoder.classify(head, [sample.asked for _, _, sample in asking.samples])
        summary = ENCODED[self.detector.name][1]
        firings = []
        for score, (trace_id, session_id, sample) in zip(scores, asking.samples, strict=True):
            # A claim that is grounded scores high: what fires is its opposite.
            share = score if head == "frustration" else 1 - score
            if share >= least:
                by_session = self.detector.grain == "session" and session_id is not None
                firings.append(
                    Firing(
                        classifier_id=self.detector.name,
                        severity="medium",
                        confidence="high" if share >= (1 + least) / 2 else "medium",
                        subject_kind="session" if by_session else "span",
                        summary=f"{summary} ({percent(share)})",
                        session_id=session_id,
                        trace_id=trace_id,
                        span_id=None if by_session else sample.span_id,
                        call_site_id=sample.call_site_id,
                    )
                )
        return firings
