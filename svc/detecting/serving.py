"""The detecting process from inside: opens the database, keeps every round, reports how they stand.

Runs in the child until standard input ends or SIGTERM comes, and a few seconds longer at most, whatever a
round is at. Never listens, never outlives its parent; each round is spare, so none ends the process.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import trio

from actors.child_pipe import next_message
from actors.rounds import Repeating
from actors.supervision import Vitals, keep
from protocol.detecting import (
    COUNTS_BOUND,
    TEXT_CHARS,
    IngestBusy,
    Report,
    RoundReport,
    StartDetecting,
    framed_message,
    read_to_detecting,
)
from protocol.framing import Frames
from protocol.storage import Outage
from svc.detecting.rounds import ROUNDS, Round, RoundContext
from svc.domain.lazy_numpy import load
from svc.outside.encoder import Encoder
from svc.runtime.asyncio_loop import asyncio_loop
from svc.runtime.child import END_TIMEOUT_S, end_with_parent, end_within, parent_pipe, run_for_parent
from svc.runtime.garbage import collect_seldom
from svc.runtime.logging import set_up
from svc.store.detection.holding import give_up_all
from svc.store.postgres.database import AWAY, Database

log = logging.getLogger(__name__)

#: Detection takes what everybody else leaves, decoders included.
NICENESS: Final = 10
#: Statements of rounds are ended by the server itself should nobody else end them.
STATEMENT_TIMEOUT_S: Final = 602.0
#: Between two looks at what there is to report, and between two signs of life.
REPORT_S: Final = 1.0
SIGN_OF_LIFE_S: Final = 30.0
#: What a process that was killed held runs out by itself within minutes, should this not be done by then.
GIVE_UP_S: Final = 10.0


@attrs.frozen(eq=False)
class KeptRound:
    """A round with what is known of it."""

    row: Round
    vitals: Vitals
    counts: Counter[str] = attrs.field(factory=Counter)

    def report(self) -> RoundReport:
        """The state of the round, within bounds."""
        vitals = self.vitals
        return RoundReport(
            name=vitals.name,
            state=vitals.state,
            crashes=vitals.crashes,
            last_error=_cut(vitals.last_error),
            waiting_for=_cut(vitals.waiting_for),
            rests_s=vitals.rests_s,
            counts=dict(self.counts.most_common(COUNTS_BOUND)),
        )


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:TEXT_CHARS]


def main() -> None:
    """Run in the child."""
    # A terminal sends its signals to the whole group; the parent decides what they mean.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    # Its first round needs it.
    load()
    orders, answers = parent_pipe()
    end_with_parent(orders, END_TIMEOUT_S)
    run_for_parent(_live, orders, answers)


async def _live(orders_fd: int, answers_fd: int) -> None:
    async with trio.lowlevel.FdStream(orders_fd) as orders, trio.lowlevel.FdStream(answers_fd) as answers:
        frames = Frames()
        start = await next_message(orders, frames, read_to_detecting)
        if not isinstance(start, StartDetecting):
            return
        set_up(start.log_level, start.log_format)
        pool = Database(start.address, pool_size=start.pool_size, statement_timeout_s=STATEMENT_TIMEOUT_S)
        async with asyncio_loop(AWAY), pool.opened() as database, trio.open_nursery() as nursery:
            nursery.start_soon(_end_on_sigterm, nursery.cancel_scope)
            if start.alone:
                await _give_up(database)
            busy = False
            context = RoundContext(
                database=database,
                secret_key=start.secret_key,
                busy=lambda: busy,
                interval_s=start.interval_s,
                false_alarms_per_month=start.false_alarms_per_month,
                encoder=None if start.encoder_url is None else Encoder(start.encoder_url, start.encoder_key),
            )
            kept_rounds = [
                KeptRound(row, Vitals(row.name, spare=True))
                for row in ROUNDS
                if context.encoder is not None or not row.asks_encoder
            ]
            await keep_rounds(nursery, context, kept_rounds)
            nursery.start_soon(_report, kept_rounds, answers)
            collect_seldom()
            while (message := await next_message(orders, frames, read_to_detecting)) is not None:
                match message:
                    case IngestBusy():
                        busy = message.busy
                    case StartDetecting():
                        raise AssertionError("a process begins once")
            nursery.cancel_scope.cancel()


async def _give_up(database: Database) -> None:
    try:
        with trio.move_on_after(GIVE_UP_S):
            await give_up_all(database)
    except Outage as outage:
        log.warning("leases of an earlier process will expire on their own: %s", outage)


async def keep_rounds(nursery: trio.Nursery, context: RoundContext, rounds: Sequence[KeptRound]) -> None:
    """Start every round, each kept for itself."""
    for kept_round in rounds:

        def build(kept_round: KeptRound = kept_round) -> Repeating:
            return Repeating(kept_round.row.build(context, kept_round.counts), kept_round.vitals)

        await nursery.start(partial(keep, build, kept_round.vitals))


async def _report(rounds: Sequence[KeptRound], answers: trio.abc.SendStream) -> None:
    """Tell whenever something changed, and that there is nothing new now and then."""
    last_report, said_s = None, 0.0
    with suppress(trio.BrokenResourceError):
        while True:
            report = Report(tuple(kept_round.report() for kept_round in rounds))
            if report != last_report or trio.current_time() - said_s >= SIGN_OF_LIFE_S:
                await answers.send_all(framed_message(report))
                last_report, said_s = report, trio.current_time()
            await trio.sleep(REPORT_S)


async def _end_on_sigterm(service_scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as arriving:
        async for _ in arriving:
            end_within(END_TIMEOUT_S)
            service_scope.cancel()
