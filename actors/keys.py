"""The key cache: turns a bearer token into a grant, with bcrypt off the path of every known token.

Owns the table of verdicts (`Verdicts`, passive, lent by the wiring) and the two actors around it:
`KeyCache` verifies tokens that are not in the table, `RevocationListener` evicts what the database says was
revoked. Fronts hold a `Keys` handle and never see a mailbox. Nothing here writes a key.

Secrets: tokens are kept as SHA-256 digests only, for as long as a verdict lives. No token, prefix or hash
is logged.

Ordering: an eviction and a check may cross. Every eviction raises the table's epoch; a check that began
in an older epoch is read again from the store before it counts, so it cannot bring a revoked key back.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from math import inf
from typing import Final

import attrs
import trio

from actors.guesses import GuessLimiter
from actors.ports import Eviction, KeyRecord, KeyStore, Outage
from actors.reply import Reply, Unanswered
from actors.rounds import OUTAGE_PAUSE_S
from actors.supervision import Vitals
from protocol.tokens import Scope, is_token, lookup_prefix

log = logging.getLogger(__name__)

POSITIVE_TTL_S: Final = 60.0
NEGATIVE_TTL_S: Final = 10.0
#: How long a last known grant stands while the store is away, before the store is asked again.
OUTAGE_TTL_S: Final = 5.0
VERDICTS_BOUND: Final = 10_000
MAILBOX_BOUND: Final = 256
#: Tokens under verification at once. The cache takes questions faster than bcrypt answers them, so the
#: mailbox alone would bound nothing; hashing this many in two threads stays within `VERIFY_TIMEOUT_S`.
FLIGHTS_BOUND: Final = 256
#: bcrypt at cost 10 takes 50 to 80 ms of a core (measured November 2026); two at once leave room for work.
HASHERS: Final = 2
VERIFY_TIMEOUT_S: Final = 10.0
ROUNDS: Final = 5
NOTE_USED_S: Final = 60.0


@attrs.frozen
class Grant:
    """What a verified key allows: its scope on its project. The key acts as `member`."""

    key_id: str
    project_id: int
    scope: Scope
    #: What alone it opens, and until when.
    purpose: str | None = None
    expires_at: datetime | None = None


@attrs.frozen
class Busy:
    """The answer when keys cannot be verified right now: too many at once, or the store is away."""


@attrs.frozen
class WasRevoked:
    """The answer for the token of a key that was revoked, or whose project was deleted."""


#: What is known of a token for a while; None for "nobody's".
Known = Grant | WasRevoked | None
Answered = Known | Busy


@attrs.frozen
class Verify:
    """A question: whose token is this? `place` is where it came from, blank where that is not known."""

    token: str = attrs.field(repr=False)
    reply: Reply[Answered]
    place: str = ""


@attrs.frozen
class _Flight:
    """A token under verification: who waits for the answer, and from which places (a set in order)."""

    replies: list[Reply[Answered]] = attrs.field(factory=list)
    places: dict[str, None] = attrs.field(factory=dict)

    def board(self, question: Verify) -> None:
        """One more who waits."""
        self.replies.append(question.reply)
        self.places[question.place] = None


@attrs.frozen
class _Verdict:
    known: Known
    until_s: float


class Verdicts:
    """Known answers by token digest, bounded, oldest out first. All verbs are synchronous."""

    def __init__(self, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._table: OrderedDict[bytes, _Verdict] = OrderedDict()
        self.epoch = 0
        self.hits = self.misses = self.refused_full = 0
        #: Keys seen since `last used` was written last.
        self.used: set[str] = set()
        #: By stored hash, the digest of the one token that fits it: any other is wrong without hashing.
        self._proofs: OrderedDict[bytes, bytes] = OrderedDict()
        self.guesses = GuessLimiter(clock)

    def find(self, token: str) -> _Verdict | None:
        """The living verdict on a token, or None when it has to be verified."""
        verdict = self._table.get(_digest(token))
        return None if verdict is None or verdict.until_s <= self._clock() else verdict

    def answer(self, verdict: _Verdict) -> Known:
        """What a verdict says, counted as a hit and as a use of its key."""
        self.hits += 1
        if isinstance(verdict.known, Grant):
            self.used.add(verdict.known.key_id)
        return verdict.known

    def last_known(self, token: str) -> Grant | None:
        """The grant that the store gave a token last, however long ago, unless it was evicted by name."""
        verdict = self._table.get(_digest(token))
        return verdict.known if verdict is not None and isinstance(verdict.known, Grant) else None

    def put(self, token: str, known: Known, ttl_s: float | None = None) -> None:
        """Remember a verdict for its time to live."""
        if ttl_s is None:
            ttl_s = POSITIVE_TTL_S if isinstance(known, Grant) else NEGATIVE_TTL_S
        self._table[_digest(token)] = _Verdict(known, self._clock() + ttl_s)
        self._table.move_to_end(_digest(token))
        if isinstance(known, Grant):
            self.used.add(known.key_id)
        while len(self._table) > VERDICTS_BOUND:
            self._table.popitem(last=False)

    def proves(self, token: str, secret_hash: bytes) -> bool | None:
        """Whether a token fits a stored hash, as far as that is known without hashing."""
        proof = self._proofs.get(secret_hash)
        return None if proof is None else compare_digest(proof, _digest(token))

    def proven(self, token: str, secret_hash: bytes) -> None:
        """Remember the token that fits a stored hash; the guesses under its prefix are forgiven."""
        self.guesses.forgive(lookup_prefix(token))
        self._proofs[secret_hash] = _digest(token)
        while len(self._proofs) > VERDICTS_BOUND:
            self._proofs.popitem(last=False)

    def evict(self, notice: Eviction) -> None:
        """Trust what the notice names no more; checks in flight will read the store again.

        A notice that names nothing makes every verdict expire at once: each token is verified anew, and only
        while the store cannot be asked does `last_known` still stand.
        """
        self.epoch += 1
        if notice.key_id is None and notice.project_id is None:
            for digest, verdict in self._table.items():
                self._table[digest] = _Verdict(verdict.known, -inf)
            return
        self._table = OrderedDict(
            (digest, verdict)
            for digest, verdict in self._table.items()
            if not isinstance(verdict.known, Grant)
            or (notice.key_id != verdict.known.key_id and notice.project_id != verdict.known.project_id)
        )

    def __len__(self) -> int:
        """How many verdicts are living."""
        now = self._clock()
        return sum(verdict.until_s > now for verdict in self._table.values())


@attrs.frozen
class Keys:
    """The handle of the fronts."""

    _verdicts: Verdicts
    _mailbox: trio.MemorySendChannel[Verify]

    def granted(self, token: str) -> Grant | None:
        """The grant of a token that was verified of late; None where that has to be asked for."""
        verdict = self._verdicts.find(token) if is_token(token) else None
        if verdict is None or not isinstance(verdict.known, Grant) or verdict.known.purpose is not None:
            return None
        self._verdicts.answer(verdict)
        return verdict.known

    async def verify(self, token: str, *, purposes: Collection[str] = (), place: str = "") -> Answered:
        """Whose token this is. A text that is no token, and a known token, are answered at once.

        A key that was made for a purpose is nobody's where that is not among `purposes`. Wrong tokens count
        against the place (`Client.place`) that they came from.
        """
        answer = await self._known(token, place)
        if isinstance(answer, Grant) and answer.purpose is not None and answer.purpose not in purposes:
            return None
        return answer

    async def _known(self, token: str, place: str) -> Answered:
        if not is_token(token):
            return None
        verdict = self._verdicts.find(token)
        if verdict is not None:
            return self._verdicts.answer(verdict)
        self._verdicts.misses += 1
        reply: Reply[Answered] = Reply()
        try:
            self._mailbox.send_nowait(Verify(token, reply, place))
        except trio.WouldBlock:
            self._verdicts.refused_full += 1
            return Busy()
        except trio.ClosedResourceError:
            return Busy()
        try:
            return await reply.wait(VERIFY_TIMEOUT_S)
        except Unanswered:
            return Busy()

    def evict(self, notice: Eviction) -> None:
        """Forget keys in the same call that revoked, rotated or deleted them."""
        self._verdicts.evict(notice)


@attrs.define(eq=False, repr=False, kw_only=True)
class KeyCache:
    """Verifies unknown tokens: one store look-up and at most a few bcrypt runs each, one flight a token."""

    _verdicts: Verdicts
    _mailbox: trio.MemoryReceiveChannel[Verify]
    _store: KeyStore
    _matches: Callable[[str, bytes], bool]
    _now: Callable[[], datetime]
    _vitals: Vitals
    #: The wiring lends the one that passwords are hashed under too.
    _hashers: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(HASHERS))
    _flights: dict[str, _Flight] = attrs.field(factory=dict, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer until the mailbox is closed. A question in hand when this crashes is told so at once."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._note_used)
                task_status.started()
                # Not `async with mailbox`: the wiring owns it, and closing it would throw questions away.
                async for question in self._mailbox:
                    flight = self._flights.get(question.token)
                    if flight is not None:
                        flight.board(question)
                    elif len(self._flights) >= FLIGHTS_BOUND:
                        self._verdicts.refused_full += 1
                        question.reply.put(Busy())
                    else:
                        self._flights[question.token] = flight = _Flight()
                        flight.board(question)
                        nursery.start_soon(self._fly, question.token)
                nursery.cancel_scope.cancel()
        finally:
            for flight in self._flights.values():
                for reply in flight.replies:
                    reply.drop()
            await self._flush_used_at_the_end()

    async def _fly(self, token: str) -> None:
        try:
            answer: Answered = await self._verdict(token)
            self._vitals.works()
        except Outage as outage:
            self._vitals.waits(str(outage))
            answer = self._during_outage(token)
        for reply in self._flights.pop(token).replies:
            reply.put(answer)

    def _during_outage(self, token: str) -> Grant | Busy:
        """What a key that worked until the store went away may still do: nobody can have revoked it there.

        So a spool goes on taking batches while the database is away; the store is asked again soon.
        """
        grant = self._verdicts.last_known(token)
        if grant is None or (grant.expires_at is not None and grant.expires_at <= self._now()):
            return Busy()
        self._verdicts.put(token, grant, OUTAGE_TTL_S)
        return grant

    async def _verdict(self, token: str) -> Answered:
        tried: dict[bytes, bool] = {}
        for _ in range(ROUNDS):
            epoch = self._verdicts.epoch
            answer = await self._match(token, await self._store.keys_behind(lookup_prefix(token)), tried)
            if isinstance(answer, Busy):
                return answer
            if self._verdicts.epoch == epoch:
                self._verdicts.put(token, answer, self._lives_s(answer))
                return answer
        return Busy()

    def _lives_s(self, answer: Known) -> float | None:
        """How long an answer is remembered: no longer than its key lives."""
        if not isinstance(answer, Grant) or answer.expires_at is None:
            return None
        return min(POSITIVE_TTL_S, (answer.expires_at - self._now()).total_seconds())

    async def _match(self, token: str, records: Sequence[KeyRecord], tried: dict[bytes, bool]) -> Answered:
        for record in records:
            proven = self._verdicts.proves(token, record.secret_hash)
            if proven is None and record.secret_hash not in tried:
                places = self._flights[token].places
                if not self._verdicts.guesses.may_run(lookup_prefix(token), places):
                    return Busy()
                tried[record.secret_hash] = await trio.to_thread.run_sync(
                    self._matches, token, record.secret_hash, limiter=self._hashers
                )
                if tried[record.secret_hash]:
                    self._verdicts.proven(token, record.secret_hash)
            if proven or tried.get(record.secret_hash):
                # Only whoever holds the whole token hears that it was revoked, and at the same cost.
                over = record.expires_at is not None and record.expires_at <= self._now()
                if record.revoked or over:
                    return WasRevoked()
                return Grant(
                    record.key_id, record.project_id, record.scope, record.purpose, record.expires_at
                )
        return None

    async def _note_used(self) -> None:
        """Write down at most once a minute which keys were used (spec, "last used")."""
        while True:
            await trio.sleep(NOTE_USED_S)
            await self._flush_used()

    async def _flush_used(self) -> None:
        used, self._verdicts.used = self._verdicts.used, set()
        if not used:
            return
        try:
            await self._store.note_used(dict.fromkeys(used, self._now()))
        except Outage:
            self._verdicts.used |= used
        except trio.Cancelled:
            # By the closing time, or by a crash elsewhere in the actor: the last flush has it again.
            self._verdicts.used |= used
            raise

    async def _flush_used_at_the_end(self) -> None:
        with trio.move_on_after(1.0, shield=True):
            await self._flush_used()


class RevocationListener:
    """Evicts what the database announces; after a lost connection every key has to be verified anew."""

    def __init__(self, *, verdicts: Verdicts, store: KeyStore, vitals: Vitals) -> None:
        self._verdicts, self._store, self._vitals = verdicts, store, vitals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled."""
        while True:
            try:
                async with self._store.evictions() as notices:
                    # What happened before the subscription stood was not heard.
                    self._verdicts.evict(Eviction())
                    self._vitals.works()
                    task_status.started()
                    async for notice in notices:
                        self._verdicts.evict(notice)
            except Outage as outage:
                self._verdicts.evict(Eviction())
                self._vitals.waits(str(outage))
                await trio.sleep(OUTAGE_PAUSE_S)


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def snapshot(verdicts: Verdicts) -> Mapping[str, int]:
    """The counters of the key cache, for metrics."""
    return {
        "known": len(verdicts),
        "hits": verdicts.hits,
        "misses": verdicts.misses,
        "refused_full": verdicts.refused_full,
        "refused_guesses": verdicts.guesses.refused,
    }
