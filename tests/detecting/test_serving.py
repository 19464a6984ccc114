"""Laws of the rounds inside the detecting process: each is kept for itself, and told within bounds."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.rounds import OUTAGE_PAUSE_S
from actors.supervision import FIRST_REST_S, Vitals
from protocol.database_address import Address
from protocol.detecting import COUNTS_BOUND, TEXT_CHARS, Report, framed_message, read_report
from protocol.framing import Frames
from protocol.storage import Outage
from svc.detecting.rounds import ROUNDS, Round, RoundContext, Work
from svc.detecting.serving import KeptRound, keep_rounds
from svc.domain.detect.detectors.table import DETECTORS
from svc.store.postgres.database import Database

#: Nothing in these rounds asks for it.
CONTEXT = RoundContext(Database(Address("/nowhere", 1, "u", "p", "d")), b"", lambda: False, 60.0, 2.0)


@attrs.define
class Story:
    """A round that does in turn what its list says, and then rests well for ever."""

    troubles: list[Exception] = attrs.field(factory=list)
    turns_s: list[float] = attrs.field(factory=list)

    def kept(self, name: str) -> KeptRound:
        def build(context: RoundContext, counts: Counter[str]) -> Work:
            async def work() -> float:
                self.turns_s.append(trio.current_time())
                counts["turns"] += 1
                if self.troubles:
                    raise self.troubles.pop(0)
                return 10.0

            return work

        return KeptRound(Round(name, build), Vitals(name, spare=True))


@pytest.mark.errors_expected
async def test_a_round_that_raises_rests_longer_each_time_and_the_others_go_on(
    autojump_clock: MockClock,
) -> None:
    bad, good = Story([ValueError("no")] * 3), Story()
    async with trio.open_nursery() as nursery:
        kept = [bad.kept("bad"), good.kept("good")]
        await keep_rounds(nursery, CONTEXT, kept)
        await trio.sleep(0.5)
        (told, other) = [one.report() for one in kept]
        assert (told.state, told.last_error, told.rests_s) == ("failed", "ValueError: no", FIRST_REST_S)
        assert other.state == "running"
        await trio.sleep(29.0)
        nursery.cancel_scope.cancel()
    gaps = [b - a for a, b in zip(bad.turns_s, bad.turns_s[1:], strict=False)]
    assert gaps[:3] == pytest.approx([FIRST_REST_S, 2 * FIRST_REST_S, 4 * FIRST_REST_S])
    assert len(good.turns_s) == 3
    assert kept[0].report().state == "running"
    assert kept[0].report().crashes == 3


async def test_an_outage_is_waited_out_and_told(autojump_clock: MockClock) -> None:
    story = Story([Outage("away")])
    kept = story.kept("judge")
    async with trio.open_nursery() as nursery:
        await keep_rounds(nursery, CONTEXT, [kept])
        await trio.sleep(0.1)
        assert (kept.report().state, kept.report().waiting_for) == ("waiting", "away")
        await trio.sleep(OUTAGE_PAUSE_S)
        assert (kept.report().state, kept.report().crashes) == ("running", 0)
        nursery.cancel_scope.cancel()


def test_a_report_is_bounded_whatever_a_round_counts_or_says() -> None:
    kept = Story().kept("judge")
    kept.vitals.last_error = kept.vitals.waiting_for = "é" * 10_000
    kept.counts.update({f"name {n}": n + 1 for n in range(10_000)})
    frames = Frames()
    frames.feed(framed_message(Report((kept.report(),))))
    message = frames.next()
    assert message is not None
    (told,) = read_report(message).rounds
    assert len(told.counts) == COUNTS_BOUND
    assert told.last_error == told.waiting_for == "é" * TEXT_CHARS


def test_names_of_rounds_are_the_ones_that_operators_know() -> None:
    judges = [f"judge-{name.replace('_', '-')}" for name, one in DETECTORS.items() if one.measures]
    assert len(judges) == 13
    assert [row.name for row in ROUNDS] == [
        "trace-folder",
        *judges,
        "judge-frustration",
        "judge-groundedness",
        "case-keeper",
        "case-analyst",
    ]
    assert [row.name for row in ROUNDS if row.asks_encoder] == ["judge-frustration", "judge-groundedness"]
