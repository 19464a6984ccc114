"""Keeping a valid certificate in the doors: the operator's own, or one that an authority gives.

Owns the rhythm: when files are looked at, when an authority is asked, how long a failure rests. What a
certificate is, who gives it and where it is kept are handed in (`actors.ports`). A certificate that cannot be
had or served never takes the one away that is served. Spare: nobody waits for these actors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import attrs
import trio

from actors.ports import Authority, CertificateStore, Showcase
from actors.rounds import rounds
from actors.supervision import Vitals
from protocol.certificates import (
    CHALLENGES,
    AuthorityFault,
    BadPair,
    CertificateFacts,
    Challenge,
    ChallengeKind,
    Kept,
    NotProven,
    Pair,
    TlsState,
    other_names,
)
from protocol.storage import Outage

log = logging.getLogger(__name__)

#: How often the operator's files are looked at.
LOOK_S: Final = 60.0
#: How long a failure rests: authorities count them.
RESTS_S: Final = (60.0, 300.0, 900.0, 3600.0, 6 * 3600.0)
#: How often the authority is asked when it wants a renewal.
RENEWAL_LOOK_S: Final = 6 * 3600.0
#: An authority that wants each certificate renewed at once is asked no sooner.
SOONEST_S: Final = 900.0
#: How often a copy that does not renew looks whether it should, beside what it is told.
STANDBY_S: Final = 10.0
WITHDRAW_TIMEOUT_S: Final = 5.0

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


@attrs.define(eq=False, repr=False, kw_only=True)
class OwnCertificate:
    """Looks at the operator's files every minute and when nudged; serves them when they have changed."""

    _read: Callable[[], Pair]
    _checked: Checked
    _showcase: Showcase
    _state: TlsState
    _nudge: Nudge
    _served: Pair
    _vitals: Vitals

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
                log.warning("%s; keeping the current certificate", bad)
            self._state.fault = str(bad)
        else:
            self._state.fault = None
        return LOOK_S


@attrs.define(eq=False, repr=False, kw_only=True)
class KeptCertificate:
    """What is on the store, shown: the certificate, and the proofs that an authority waits for.

    Passive; the actor that renews and the one that hears of other copies share it.
    """

    store: CertificateStore
    _checked: Checked
    _proof: Callable[[Challenge], Pair]
    _showcase: Showcase
    state: TlsState
    _served: Pair | None = attrs.field(default=None, init=False)

    async def refresh(self) -> Kept:
        """Show what is kept now. A pair that is no good is left out of what is returned. Raises `Outage`."""
        certificate = await self.store.load()
        if certificate.pair is not None and certificate.pair != self._served:
            try:
                self.show(certificate.pair)
            except BadPair as bad:
                log.warning("the stored certificate is invalid: %s", bad)
                certificate = attrs.evolve(certificate, pair=None)
        waiting = [
            challenge for challenge in await self.store.challenges() if challenge.kind == "tls-alpn-01"
        ]
        self.prove(waiting[0] if waiting else None)
        return certificate

    def show(self, pair: Pair) -> None:
        """Show this certificate. Raises `BadPair`."""
        facts = self._checked(pair)
        if not facts.covers(self.state.domain):
            raise BadPair(other_names(self.state.domain, facts.names))
        self._showcase.serve(pair)
        self._served, self.state.facts, self.state.fault = pair, facts, None
        self.state.swaps += 1
        log.info("serving the certificate of %s until %s", facts.issuer, facts.ends_at.date())

    def prove(self, challenge: Challenge | None) -> None:
        """Show the proof of a challenge in handshakes, none for None."""
        self._showcase.prove(None if challenge is None else self._proof(challenge))


class AcmeCertificate:
    """Gets a certificate from an authority, and a new one in time; shows what is kept in the meantime.

    `renews` says whether it is on this copy to ask; the others show what they find on the store. An order
    tries the challenge that worked last; after the first failure the other one at once, then in turns.
    """

    def __init__(
        self,
        *,
        authority: Authority,
        kept: KeptCertificate,
        nudge: Nudge,
        renews: Callable[[], bool],
        now: Callable[[], datetime],
        vitals: Vitals,
    ) -> None:
        self._authority, self._kept, self._nudge = authority, kept, nudge
        self._store, self._state = kept.store, kept.state
        self._renews, self._now, self._vitals = renews, now, vitals
        self._failures = self._refusals = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. What is kept is shown before anybody can ask."""
        with suppress(Outage):
            await self._kept.refresh()
        await rounds(self._round, self._vitals, rest=self._nudge.rest, task_status=task_status)

    async def _round(self) -> float:
        certificate = await self._kept.refresh()
        if not self._renews():
            return STANDBY_S
        left_s = await self._until_renewal(certificate)
        if left_s > 0:
            return min(left_s, RENEWAL_LOOK_S)
        try:
            certificate = await self._obtain(certificate)
        except AuthorityFault as fault:
            fault.pause_s = RESTS_S[min(self._failures, len(RESTS_S) - 1)]
            self._failures += 1
            self._state.fault = str(fault)
            log.warning("no new certificate: %s; next attempt in %g s", fault, fault.pause_s)
            raise
        self._failures, self._refusals, self._state.fault = 0, 0, None
        return min(max(await self._until_renewal(certificate), SOONEST_S), RENEWAL_LOOK_S)

    async def _until_renewal(self, certificate: Kept) -> float:
        facts, now = self._state.facts, self._now()
        if certificate.pair is None or facts is None or facts.left(now) <= timedelta(0):
            return 0.0
        try:
            due_at = await self._authority.renewal(certificate.pair)
        except AuthorityFault as fault:
            # It has been away before; two thirds of a life leave weeks to try in.
            log.info("the authority does not say when to renew: %s", fault)
            due_at = None
        return ((due_at or facts.due_at) - now).total_seconds()

    async def _obtain(self, certificate: Kept) -> Kept:
        first = certificate.proven_by or CHALLENGES[0]
        by_preference = (first, *(kind for kind in CHALLENGES if kind != first))
        kinds = by_preference if not self._refusals else (by_preference[self._refusals % 2],)
        refused: NotProven | None = None
        for kind in kinds:
            try:
                return await self._obtain_by(certificate, kind)
            except NotProven as fault:
                log.warning("by %s: %s", kind, fault)
                refused = fault
                # The account of the first try is there for the second.
                certificate = await self._store.load()
        assert refused is not None
        self._refusals += 1
        raise refused

    async def _obtain_by(self, certificate: Kept, kind: ChallengeKind) -> Kept:
        ordered = await self._authority.order(certificate, kind)
        if ordered.kept != certificate:
            await self._store.keep(ordered.kept)
        challenge = ordered.challenge
        try:
            if challenge is not None:
                await self._store.publish(challenge)
                if kind == "tls-alpn-01":
                    self._kept.prove(challenge)
            pair = await self._authority.finish(ordered)
        finally:
            if challenge is not None:
                self._kept.prove(None)
                with trio.move_on_after(WITHDRAW_TIMEOUT_S, shield=True):
                    await self._store.withdraw(challenge)
        if not self._renews():
            raise AuthorityFault("another copy has taken over")
        try:
            self._kept.show(pair)
        except BadPair as bad:
            raise AuthorityFault(f"what the authority gave cannot be served: {bad}") from None
        proven_by = kind if challenge is not None else ordered.kept.proven_by
        certificate = attrs.evolve(ordered.kept, pair=pair, proven_by=proven_by)
        await self._store.keep(certificate)
        return certificate
