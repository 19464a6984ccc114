"""The launcher: has runs of agents done by a runner, and stores what they come to.

Owns the rhythm of claims, renewals and watching, the breaker, and the table of outcomes: what is seen of a
runner or a run, and what follows of it. A run is held by a lease; whoever is killed is followed by the next
launcher, which finds the same work under way. Never judges an answer: `RunRequests` does.

Secrets: a run's key of the project is revoked in every ending, also when the launcher is cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import trio

from actors.ports import RunnerHost, RunnerLink, RunOutcomes, RunRequests, RunStore
from actors.rounds import OUTAGE_PAUSE_S, through_outages
from actors.run_courses import (
    AWAY_S,
    DETERMINISTIC,
    PARKING_REASONS,
    Cancelled,
    Course,
    Finish,
    Park,
    Refund,
    Spend,
    of_refusal,
    of_result,
    of_watching,
)
from actors.supervision import Vitals
from protocol.agents import RunAbandoned, RunLease, Spent
from protocol.detection import SYSTEM
from protocol.running import (
    CAPACITY,
    OVER,
    RunnerAway,
    RunnerHealth,
    RunnerRefused,
    RunRequest,
)
from protocol.storage import Outage

log = logging.getLogger(__name__)

#: A lease holds for 60 s by the store's clock.
RENEW_S: Final = 20.0
#: Between two looks for work, when nobody wakes it.
LOOK_S: Final = 10.0
#: How often expired keys are swept and findings pressed by themselves.
UPKEEP_S: Final = 60.0
#: How often the runner is asked how it is.
HEALTH_S: Final = 15.0
#: A runner that failed so often in a row is left alone for so long.
BREAKER_FAILURES: Final = 3
BREAKER_S: Final = 300.0
#: A runner that does not answer while its run is watched is asked again so often.
WATCH_TRIES: Final = 3
WATCH_PAUSE_S: Final = 2.0
REVOKE_S: Final = 5.0


@attrs.define
class LauncherState:
    """What is known of the launcher from outside. Written by it, read by health."""

    where: str
    in_hand: int = 0
    failures: int = 0
    #: On Trio's clock, while the runner is left alone.
    open_until_s: float | None = None
    last_error: str | None = None
    #: What the runner said last; None while none has answered.
    runner: RunnerHealth | None = None
    #: Why the runner that is a child cannot be had.
    child_fault: str | None = None

    @property
    def fault(self) -> str | None:
        """Why no run can be started now; None: runs can, as far as anybody knows."""
        if self.child_fault is not None:
            return self.child_fault
        if self.open_until_s is not None:
            return f"the runner failed {BREAKER_FAILURES} times in a row: {self.last_error}"
        return self.runner.fault or None if self.runner is not None else None

    def snapshot(self) -> dict[str, Any]:
        """As health shows it; `fault` stands there only while there is one."""
        facts: dict[str, Any] = {
            "runner": self.where,
            "breaker": "closed" if self.open_until_s is None else "open",
            "in_hand": self.in_hand,
        }
        if self.last_error is not None:
            facts["last_error"] = self.last_error
        if self.runner is not None:
            facts |= msgspec.structs.asdict(self.runner)
            if not self.runner.scripts:
                fault = self.runner.scripts_fault or "no sandbox can be used"
                facts["note"] = f"runs go on without scripts: {fault}"
        facts.pop("fault", None)
        if self.fault is not None:
            facts["fault"] = self.fault
        return facts


@attrs.define(eq=False, repr=False, kw_only=True)
class Launcher:
    """Claims runs while the runner has room, and holds each until it is over."""

    _store: RunStore
    _outcomes: RunOutcomes
    _requests: RunRequests
    _host: RunnerHost
    _now: Callable[[], datetime]
    _state: LauncherState
    _vitals: Vitals
    _woken: trio.Event = attrs.field(factory=trio.Event, init=False)
    _upkeep_s: float = attrs.field(default=0.0, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        self._state.in_hand = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            nursery.start_soon(self._looking)
            while True:
                woken = self._woken
                try:
                    await self._round(nursery)
                    self._vitals.works()
                    rest_s = LOOK_S
                except Outage as outage:
                    self._vitals.waits(str(outage))
                    rest_s = OUTAGE_PAUSE_S
                with trio.move_on_after(rest_s):
                    await woken.wait()

    async def _listen(self) -> None:
        while True:
            try:
                async with self._store.notices() as notices:
                    async for _ in notices:
                        self._wake()
            except Outage:
                pass
            await trio.sleep(OUTAGE_PAUSE_S)
            self._wake()

    async def _looking(self) -> None:
        """Ask the runner now and then how it is, if there is one and it is not left alone."""
        while True:
            link = self._host.present()
            if link is not None and self._state.open_until_s is None:
                health = await link.health()
                if isinstance(health, RunnerHealth):
                    self._state.runner = health
            await trio.sleep(HEALTH_S)

    def _wake(self) -> None:
        woken, self._woken = self._woken, trio.Event()
        woken.set()

    async def _round(self, nursery: trio.Nursery) -> None:
        if trio.current_time() >= self._upkeep_s:
            self._upkeep_s = trio.current_time() + UPKEEP_S
            await self._requests.sweep()
            await self._store.press_automatic(SYSTEM, self._now())
        while self._state.in_hand < CAPACITY and await self._closed():
            lease = await self._store.claim(self._now())
            if lease is None:
                return
            if isinstance(lease, RunAbandoned):
                nursery.start_soon(self._end_abandoned, lease.name)
                continue
            self._state.in_hand += 1
            nursery.start_soon(self._hold, lease)

    async def _end_abandoned(self, name: str) -> None:
        """Have the runner end what nobody follows any more, rather than find that out itself."""
        link = self._host.present()
        if link is not None:
            await link.cancel(name)

    async def _closed(self) -> bool:
        """Whether runs may go to the runner; after its rest it is asked once how it is."""
        if self._state.open_until_s is None:
            return True
        if trio.current_time() < self._state.open_until_s:
            return False
        link = await self._host.link()
        health = link if isinstance(link, RunnerAway) else await link.health()
        if isinstance(health, RunnerHealth):
            self._state.open_until_s, self._state.failures, self._state.runner = None, 0, health
            return True
        self._state.open_until_s = trio.current_time() + BREAKER_S
        return False

    def _count(self, course: Course) -> None:
        """Three failures of the runner in a row open the breaker."""
        if not isinstance(course, Refund) or not course.counts:
            self._state.failures = 0
            return
        self._state.failures += 1
        self._state.last_error = course.why
        if self._state.failures >= BREAKER_FAILURES and self._state.open_until_s is None:
            log.warning("not asking the runner for %g s: %s", BREAKER_S, course.why)
            self._state.open_until_s = trio.current_time() + BREAKER_S

    async def _hold(self, lease: RunLease) -> None:
        try:
            async with trio.open_nursery() as nursery:
                hold = _Hold(lease)
                nursery.start_soon(self._renewing, hold, nursery.cancel_scope)
                course = await self._course(hold)
                self._count(course)
                if hold.unwanted and not isinstance(course, Finish):
                    course = Cancelled()
                await self._settle(hold, course)
                nursery.cancel_scope.cancel()
        except* Outage:
            # Its lease runs out, and whoever comes next goes on with it.
            log.warning("releasing run %s: the database is away", lease.run_id)
        finally:
            self._state.in_hand -= 1
            self._wake()

    async def _renewing(self, hold: _Hold, scope: trio.CancelScope) -> None:
        while True:
            woken = self._woken
            with trio.move_on_after(RENEW_S):
                await woken.wait()
            try:
                renewal = await self._store.renew(hold.lease)
            except Outage:
                continue
            if renewal is None:
                scope.cancel()
                return
            if renewal.cancelled and not hold.unwanted:
                hold.unwanted = True
                await hold.leave()

    async def _course(self, hold: _Hold) -> Course:
        """Have the run done; what follows of it. Its key is revoked whatever happens."""
        lease, key_id = hold.lease, None
        try:
            if lease.key_id is not None and lease.taken_over:
                await self._requests.revoke(lease, lease.key_id)
            draft = await self._requests.request(lease)
            if isinstance(draft, str):
                reason = PARKING_REASONS.get(draft)
                return Spend(draft, attempts=1) if reason is None else Park(reason)
            draft = _as_before(lease, draft)
            await self._store.asked_with(lease, msgspec.to_builtins(draft.plain()), draft.model)
            key_id, request = await self._requests.mint(lease, draft)
            return await self._done(hold, request)
        finally:
            if key_id is not None:
                with trio.move_on_after(REVOKE_S, shield=True):
                    try:
                        await self._requests.revoke(lease, key_id)
                    except Outage:
                        # It is over by itself; the sweep writes it down.
                        log.warning("the key of run %s could not be revoked yet", lease.run_id)

    async def _done(self, hold: _Hold, request: RunRequest) -> Course:
        lease, link = hold.lease, await self._host.link()
        if isinstance(link, RunnerAway):
            return of_refusal(link)
        hold.link = link
        if hold.unwanted:
            return Cancelled()
        start = await link.begin(lease.name, request)
        if isinstance(start, RunnerRefused | RunnerAway):
            return of_refusal(start)
        if hold.spent.turns and not start.known:
            # The runner that spent this is gone. This claim's cap is no more for another to spend anew.
            await link.cancel(lease.name)
            return of_watching(RunnerRefused(404))
        await hold.leave()
        trouble = await self._watch(hold, link)
        if trouble is not None:
            return of_watching(trouble)
        result = await link.result(lease.name)
        if isinstance(result, RunnerRefused | RunnerAway):
            return of_watching(result)
        hold.spent = result.spent
        if result.model is not None:
            await self._store.ran_on(lease, result.model)
        course = of_result(result)
        if isinstance(course, Cancelled) and not hold.unwanted:
            return Refund(AWAY_S, "the runner ended the run: it was stopped, or nobody had listened")
        if course is not None:
            return course
        answer = await self._requests.checked(lease, request, result.result or {})
        return Spend(f"bad_output: {answer}", DETERMINISTIC) if isinstance(answer, str) else Finish(answer)

    async def _watch(self, hold: _Hold, link: RunnerLink) -> RunnerRefused | RunnerAway | None:
        """Follow the run until it is over; what stood in the way of that."""
        cursor = tries = 0
        while True:
            run_events = await link.events(hold.lease.name, cursor)
            if isinstance(run_events, RunnerRefused | RunnerAway):
                tries += 1
                if tries >= WATCH_TRIES or (
                    isinstance(run_events, RunnerRefused) and run_events.status < 500
                ):
                    return run_events
                await trio.sleep(WATCH_PAUSE_S)
                continue
            tries, spent_before, hold.spent = 0, hold.spent, run_events.spent
            try:
                if run_events.events or run_events.spent != spent_before:
                    await self._store.progress(hold.lease, run_events.spent, run_events.events)
                cursor = run_events.next
            except Outage:
                # The run goes on; what happened is told again.
                await trio.sleep(OUTAGE_PAUSE_S)
            if run_events.state in OVER:
                return None

    async def _settle(self, hold: _Hold, course: Course) -> None:
        """Store what it came to, through an outage; dropped when the run is lost."""
        if not await through_outages(partial(self._stored, hold, course), self._vitals):
            log.warning("run %s was lost to another launcher", hold.lease.run_id)

    async def _stored(self, hold: _Hold, course: Course) -> bool:
        lease, spent, now = hold.lease, hold.spent, self._now()
        match course:
            case Finish(answer):
                return await self._outcomes.finish(lease, answer, spent, now)
            case Cancelled():
                return await self._outcomes.cancelled(lease, spent, now)
            case Spend(why, attempts):
                final = lease.attempt >= attempts
                return await self._outcomes.fail(lease, why, spent, now, final=final)
            case Park(reason):
                return await self._store.park(lease, reason, spent)
            case Refund(due_s, why, _):
                return await self._store.refund(lease, due_s, why, spent, now)


@attrs.define(eq=False)
class _Hold:
    """A run in hand: what its claim has used, whether somebody wants it to end, who does it."""

    lease: RunLease
    #: At first what its last holder knew of.
    spent: Spent = attrs.field(default=attrs.Factory(lambda hold: hold.lease.used, takes_self=True))
    unwanted: bool = False
    link: RunnerLink | None = None

    async def leave(self) -> None:
        """Have the runner end it, if that is wanted."""
        if self.unwanted and self.link is not None:
            await self.link.cancel(self.lease.name)


def _as_before(lease: RunLease, request: RunRequest) -> RunRequest:
    """What the last holder asked, with the secrets of now: only so the runner knows its run again."""
    if lease.request is None:
        return request
    previous = msgspec.convert(lease.request, RunRequest)
    previous_model, model = previous.credential, request.credential
    # Secrets of now are for the places of now: where those of then were others, there are none.
    same = (previous_model.provider, previous_model.base_url) == (model.provider, model.base_url)
    repo_secret = None
    if (
        previous.repo is not None
        and request.repo is not None
        and previous.repo.clone_url == request.repo.clone_url
    ):
        repo_secret = request.repo.secret
    opened = previous.opened(model.secret if same else None, repo_secret, "")
    return msgspec.structs.replace(opened, mcp=request.mcp)
