"""Keeping a certificate: when an authority is asked, how long a failure rests, what is never taken away."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.certificates import RESTS_S, AcmeCertificate, KeptCertificate, Nudge
from actors.supervision import Vitals
from protocol.certificates import (
    AuthorityFault,
    Challenge,
    ChallengeKind,
    Kept,
    NotProven,
    Ordered,
    Pair,
    TlsState,
)
from svc.secrets.certificates import checked, proof
from svc.secrets.tls_files import TlsFiles
from tests.certificates import pair_for

DOMAIN = "traces.example.org"
BEGIN = datetime.now(UTC)


def now() -> datetime:
    """The time of day on Trio's clock."""
    return _begin + timedelta(seconds=trio.current_time() - _zero_s)


_zero_s, _begin = 0.0, BEGIN


@attrs.define
class Script:
    """An authority that does as it is told: faults first, then certificates that live so long."""

    faults: list[AuthorityFault | None] = attrs.field(factory=list)
    life: timedelta = timedelta(days=30)
    renew_at: datetime | None = None
    asked: list[tuple[float, str]] = attrs.field(factory=list)

    async def order(self, kept: Kept, kind: ChallengeKind) -> Ordered:
        self.asked.append((trio.current_time() - _zero_s, kind))
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        return Ordered(attrs.evolve(kept, account_url="a"), Challenge(kind, DOMAIN, "t", "t.k"), None)

    async def finish(self, ordered: Ordered) -> Pair:
        return pair_for(DOMAIN, life=self.life, age=_begin - now())

    async def renewal(self, pair: Pair) -> datetime | None:
        return self.renew_at


@attrs.define
class Window:
    """What is shown in the doors."""

    served: list[Pair] = attrs.field(factory=list)
    proofs: list[Pair | None] = attrs.field(factory=list)

    def serve(self, pair: Pair) -> None:
        self.served.append(pair)

    def prove(self, pair: Pair | None) -> None:
        self.proofs.append(pair)


@attrs.define
class Store:
    """What is kept, in memory: threads that read files do not hold the test's clock."""

    kept: Kept = attrs.field(factory=Kept)
    waiting: list[Challenge] = attrs.field(factory=list)

    async def load(self) -> Kept:
        return self.kept

    async def keep(self, kept: Kept) -> None:
        self.kept = kept

    async def publish(self, challenge: Challenge) -> None:
        self.waiting.append(challenge)

    async def withdraw(self, challenge: Challenge) -> None:
        self.waiting.remove(challenge)

    async def challenges(self) -> Sequence[Challenge]:
        return self.waiting

    async def answer(self, token: str) -> str | None:
        raise AssertionError("the doors ask, not the actor")


@attrs.frozen
class Scene:
    script: Script
    window: Window
    state: TlsState
    vitals: Vitals
    nudge: Nudge
    store: Store


@asynccontextmanager
async def kept_up(script: Script, store: Store | None = None, *, renews: bool = True) -> AsyncIterator[Scene]:
    """The actor at work."""
    global _zero_s, _begin
    _zero_s, _begin = trio.current_time(), datetime.now(UTC)
    store = store or Store()
    scene = Scene(script, Window(), TlsState("acme", DOMAIN), Vitals("c", spare=True), Nudge(), store)
    kept = KeptCertificate(
        store=store,
        checked=lambda pair: checked(pair, now(), DOMAIN),
        proof=lambda challenge: proof(challenge, now()),
        showcase=scene.window,
        state=scene.state,
    )
    actor = AcmeCertificate(
        authority=script, kept=kept, nudge=scene.nudge, renews=lambda: renews, now=now, vitals=scene.vitals
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: actor.run(task_status=task_status))
        yield scene
        nursery.cancel_scope.cancel()


async def test_a_failure_rests_longer_each_time_and_is_shown(autojump_clock: MockClock) -> None:
    away = [AuthorityFault("the authority is away") for _ in range(6)]
    async with kept_up(Script(list(away))) as scene:
        await trio.sleep(30)
        assert scene.state.fault == "the authority is away"
        assert (scene.vitals.state, scene.state.word(now())) == ("waiting", "waiting")
        assert scene.window.served == []
        await trio.sleep(sum(RESTS_S) + 7 * 3600)
        times = [at_s for at_s, _ in scene.script.asked]
        rests = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
        assert rests == [60, 300, 900, 3600, 6 * 3600, 6 * 3600]
        assert scene.state.snapshot(now())["tls"] == "valid"
        assert "last_fault" not in scene.state.snapshot(now())
        assert scene.vitals.snapshot()["state"] == "running"


async def test_the_other_challenge_is_tried_at_once_and_what_worked_first_the_next_time(
    autojump_clock: MockClock,
) -> None:
    script = Script([NotProven("port 80 is closed")], life=timedelta(hours=3))
    async with kept_up(script) as scene:
        await trio.sleep(1)
        assert [kind for _, kind in script.asked] == ["http-01", "tls-alpn-01"]
        # Its proof was shown while the authority looked, and no longer.
        assert [one is None for one in scene.window.proofs if one] == [False]
        assert scene.window.proofs[-1] is None
        assert scene.store.waiting == []
        await trio.sleep(2.5 * 3600)
        assert [kind for _, kind in script.asked] == ["http-01", "tls-alpn-01", "tls-alpn-01"]
        assert script.asked[-1][0] == pytest.approx(2 * 3600, abs=2)
        assert len(scene.window.served) == 2


async def test_two_challenges_that_fail_are_taken_in_turns(autojump_clock: MockClock) -> None:
    script = Script([NotProven("no") for _ in range(5)])
    async with kept_up(script):
        await trio.sleep(3600 * 2)
    assert [kind for _, kind in script.asked] == [
        *("http-01", "tls-alpn-01"),
        *("tls-alpn-01", "http-01", "tls-alpn-01", "http-01"),
    ]


async def test_a_renewal_comes_when_the_authority_says(autojump_clock: MockClock) -> None:
    script = Script(renew_at=datetime.now(UTC) + timedelta(hours=10))
    async with kept_up(script):
        await trio.sleep(9.9 * 3600)
        assert len(script.asked) == 1
        await trio.sleep(3600)
        assert len(script.asked) > 1


async def test_a_renewal_that_fails_leaves_the_certificate_where_it_is(autojump_clock: MockClock) -> None:
    script = Script(
        [None, *(AuthorityFault("busy") for _ in range(9))], renew_at=datetime.now(UTC) + timedelta(hours=1)
    )
    async with kept_up(script) as scene:
        await trio.sleep(2 * 3600)
        assert (scene.state.fault, scene.state.word(now())) == ("busy", "valid")
        assert len(scene.window.served) == 1


async def test_a_certificate_for_another_name_is_never_shown(autojump_clock: MockClock) -> None:
    class Elsewhere(Script):
        async def finish(self, ordered: Ordered) -> Pair:
            return pair_for("elsewhere.example")

    async with kept_up(Elsewhere()) as scene:
        await trio.sleep(10)
        assert scene.window.served == []
        assert "is for elsewhere.example" in (scene.state.fault or "")


async def test_what_is_kept_is_shown_before_the_start_is_over_and_nobody_is_asked(
    autojump_clock: MockClock,
) -> None:
    pair = pair_for(DOMAIN)
    async with kept_up(Script(), Store(Kept(b"key", "a", "d", None, pair))) as scene:
        assert scene.window.served == [pair]
        await trio.sleep(60)
        assert scene.script.asked == []


@pytest.mark.parametrize("left", ["whole", "half", "broken", "expired"])
async def test_a_kept_pair_that_is_no_good_is_left_out_without_its_account(tmp_path: Path, left: str) -> None:
    pair = pair_for(DOMAIN, life=timedelta(hours=1), age=timedelta(hours=2 if left == "expired" else 0))
    files = TlsFiles(tmp_path / "tls", DOMAIN)
    await files.keep(Kept(b"key", "a", "d", "http-01", pair))
    if left == "half":
        (files.folder / f"{DOMAIN}.key").unlink()
    elif left == "broken":
        (files.folder / f"{DOMAIN}.crt").write_bytes(b"nothing")
    window = Window()
    kept = await KeptCertificate(
        store=files,
        checked=lambda pair: checked(pair, datetime.now(UTC), DOMAIN),
        proof=lambda challenge: proof(challenge, datetime.now(UTC)),
        showcase=window,
        state=TlsState("acme", DOMAIN),
    ).refresh()
    assert (kept.pair is not None, len(window.served)) == ((True, 1) if left == "whole" else (False, 0))
    assert (kept.account_key, kept.account_url, kept.proven_by) == (b"key", "a", "http-01")


async def test_an_account_file_that_is_cut_off_costs_no_certificate(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "tls", DOMAIN)
    pair = pair_for(DOMAIN)
    await files.keep(Kept(b"key", "a", "d", "http-01", pair))
    (files.folder / "account.json").write_bytes(b'{"account_url": "a')
    assert await files.load() == Kept(b"key", pair=pair)


async def test_a_copy_that_does_not_renew_asks_nobody_and_shows_what_it_finds(
    autojump_clock: MockClock,
) -> None:
    async with kept_up(Script(), renews=False) as scene:
        await trio.sleep(3600)
        assert (scene.script.asked, scene.window.served) == ([], [])
        pair = pair_for(DOMAIN)
        await scene.store.keep(Kept(pair=pair))
        await scene.store.publish(Challenge("tls-alpn-01", DOMAIN, "t", "t.k"))
        await trio.sleep(11)
        assert scene.window.served == [pair]
        assert scene.window.proofs[-1] is not None


async def test_a_nudge_wakes_a_failure_before_its_time(autojump_clock: MockClock) -> None:
    async with kept_up(Script([AuthorityFault("away")])) as scene:
        await trio.sleep(1)
        scene.nudge.push()
        await trio.sleep(1)
        assert scene.state.word(now()) == "valid"
