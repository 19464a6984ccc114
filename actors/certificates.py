"""Keeping a valid certificate in the doors: the operator's own, or one that an authority gives.

Owns the rhythm: when files are looked at, when an authority is asked, how long a failure rests. What a
certificate is, who gives it and where it is kept are handed in (`actors.ports`). A certificate that cannot be
had or served never takes the one away that is served. Spare: nobody waits for these actors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from actors.ports import Showcase
from actors.rounds import rounds
from actors.supervision import Vitals
from protocol.certificates import BadPair, CertificateFacts, Pair, TlsState

log = logging.getLogger(__name__)

#: How often the operator's files are looked at.
LOOK_S: Final = 60.0

#: What a pair's certificate says; raises `BadPair` unless it can be served.
Checked = Callable[[Pair], CertificateFacts]


class Nudge:
    """Wakes an actor before its time: `push` from anywhere, `rest` in the actor."""

    def __init__(self) -> None:
        self._pushed = trio.Event()

    def push(self) -> None:
        """Wake whoever rests; one that is at work rests not at all next."""
        self._pushed.set()

    async def rest(self, rest_s: float) -> None:
        """Rest, until pushed at the latest."""
        with trio.move_on_after(rest_s):
            await self._pushed.wait()
        self._pushed = trio.Event()


class OwnCertificate:
    """Looks at the operator's files every minute and when nudged; serves them when they have changed."""

    def __init__(
        self,
        *,
        read: Callable[[], Pair],
        checked: Checked,
        showcase: Showcase,
        state: TlsState,
        nudge: Nudge,
        served: Pair,
        vitals: Vitals,
    ) -> None:
        self._read, self._checked, self._showcase = read, checked, showcase
        self._state, self._nudge, self._vitals = state, nudge, vitals
        self._served = served

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        await rounds(
            self._look, self._vitals, begin_after_s=LOOK_S, rest=self._nudge.rest, task_status=task_status
        )

    async def _look(self) -> float:
        try:
            pair = await trio.to_thread.run_sync(self._read)
            if pair != self._served:
                facts = await trio.to_thread.run_sync(self._checked, pair)
                self._showcase.serve(pair)
                self._served, self._state.facts = pair, facts
                self._state.swaps += 1
                log.info("serving the new certificate of %s until %s", facts.issuer, facts.ends_at.date())
        except BadPair as bad:
            if str(bad) != self._state.fault:
                log.warning("%s; the certificate that is served stays", bad)
            self._state.fault = str(bad)
        else:
            self._state.fault = None
        return LOOK_S
