"""Laws of the key cache: what is verified, how long it is believed, and that a revoked key stays revoked.

bcrypt is a comparison here, run in a real thread and held there at will. Where time matters the test moves
it by hand, because Trio's self-moving clock would jump whenever everyone waits for a thread.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.guesses import (
    GUESSES_BOUND,
    GUESSES_OF_PLACE,
    GUESSES_SHARED,
    GUESSES_WINDOW_S,
    GuessLimiter,
)
from actors.keys import (
    FLIGHTS_BOUND,
    HASHERS,
    MAILBOX_BOUND,
    NEGATIVE_TTL_S,
    NOTE_USED_S,
    OUTAGE_TTL_S,
    POSITIVE_TTL_S,
    ROUNDS,
    VERDICTS_BOUND,
    VERIFY_TIMEOUT_S,
    Answered,
    Busy,
    Grant,
    KeyCache,
    Keys,
    RevocationListener,
    Verdicts,
    Verify,
    WasRevoked,
    snapshot,
)
from actors.reply import Reply
from actors.supervision import Vitals, keep
from protocol.storage import Eviction, KeyRecord, Outage
from protocol.tokens import lookup_prefix, new_token
from tests.actors.every_await import Strike, at_every_await

NOW = datetime(2026, 11, 1, tzinfo=UTC)
GRANT = Grant("k1", 7, "write")
PATIENCE_S = 60.0


@attrs.define
class Store:
    """A table of keys. The next calls of each verb meet its troubles; `gate`, when set, holds look-ups."""

    records: list[tuple[str, KeyRecord]] = attrs.field(factory=list)
    lookups: list[str] = attrs.field(factory=list)
    noted: list[dict[str, datetime]] = attrs.field(factory=list)
    troubles: list[Exception] = attrs.field(factory=list)
    note_troubles: list[Exception] = attrs.field(factory=list)
    line_troubles: list[Exception] = attrs.field(factory=list)
    lines: list[trio.MemorySendChannel[Eviction | Exception]] = attrs.field(factory=list)
    gate: trio.Event | None = None
    note_gate: trio.Event | None = None
    on_lookup: Callable[[], None] = lambda: None

    def add(self, token: str, grant: Grant = GRANT) -> None:
        record = KeyRecord(grant.key_id, grant.project_id, grant.scope, token.encode())
        self.records.append((lookup_prefix(token), record))

    async def keys_behind(self, lookup_prefix: str) -> Sequence[KeyRecord]:
        self.lookups.append(lookup_prefix)
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)
        found = [record for prefix, record in self.records if prefix == lookup_prefix]
        if self.gate is not None:
            await self.gate.wait()
        await trio.lowlevel.checkpoint()
        self.on_lookup()
        return found

    async def note_used(self, used: dict[str, datetime]) -> None:
        await trio.lowlevel.checkpoint()
        if self.note_troubles:
            raise self.note_troubles.pop(0)
        if self.note_gate is not None:
            await self.note_gate.wait()
        self.noted.append(used)

    @asynccontextmanager
    async def evictions(self) -> AsyncIterator[AsyncIterator[Eviction]]:
        await trio.lowlevel.checkpoint()
        if self.line_troubles:
            raise self.line_troubles.pop(0)
        send, receive = trio.open_memory_channel[Eviction | Exception](64)

        async def notices() -> AsyncIterator[Eviction]:
            async for notice in receive:
                if isinstance(notice, Exception):
                    raise notice
                yield notice
            raise Outage("the line is dead")

        self.lines.append(send)
        try:
            with receive:
                yield notices()
        finally:
            self.lines.remove(send)
            send.close()


@attrs.define
class Hasher:
    """bcrypt's stand-in, called in threads. `gate`, when set, holds every call."""

    calls: list[str] = attrs.field(factory=list)
    at_once: int = 0
    most_at_once: int = 0
    gate: threading.Event | None = None
    trouble: Exception | None = None
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def matches(self, token: str, secret_hash: bytes) -> bool:
        with self.lock:
            self.calls.append(token)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        if self.trouble is not None:
            raise self.trouble
        if self.gate is not None:
            assert self.gate.wait(PATIENCE_S)
        with self.lock:
            self.at_once -= 1
        return token.encode() == secret_hash


class House:
    """The table, the mailbox and the handle, as the wiring makes them."""

    def __init__(self, bound: int = MAILBOX_BOUND) -> None:
        self.verdicts = Verdicts()
        self.store, self.hasher = Store(), Hasher()
        self.send, self.receive = trio.open_memory_channel[Verify](bound)
        self.keys = Keys(self.verdicts, self.send)
        self.vitals = Vitals("key-cache")
        self.answers: list[Answered] = []

    def cache(self) -> KeyCache:
        return KeyCache(
            verdicts=self.verdicts,
            mailbox=self.receive,
            store=self.store,
            matches=self.hasher.matches,
            now=lambda: NOW,
            vitals=self.vitals,
        )

    def listener(self) -> RevocationListener:
        return RevocationListener(verdicts=self.verdicts, store=self.store, vitals=self.vitals)

    def token(self, grant: Grant = GRANT) -> str:
        """A token that the store knows."""
        token = new_token(grant.scope)
        self.store.add(token, grant)
        return token

    def revoke(self, key_id: str) -> None:
        """What the front does: the row first, then the handle."""
        self.store.records = [
            (prefix, attrs.evolve(record, revoked=record.revoked or record.key_id == key_id))
            for prefix, record in self.store.records
        ]
        self.keys.evict(Eviction(key_id=key_id))

    async def ask(self, token: str, place: str = "") -> None:
        self.answers.append(await self.keys.verify(token, place=place))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.cache().run)
            await wait_all_tasks_blocked()
            yield nursery
            nursery.cancel_scope.cancel()


@pytest.fixture
def house() -> House:
    return House()


async def until(fact: Callable[[], object]) -> None:
    """Let other tasks and threads work until the fact holds."""
    give_up = threading.Event()
    timer = threading.Timer(PATIENCE_S, give_up.set)
    timer.start()
    while not fact():
        assert not give_up.is_set()
        await trio.lowlevel.checkpoint()
    timer.cancel()


# Verifying.


async def test_a_known_token_is_granted_and_from_then_on_without_the_store(house: House) -> None:
    token = house.token()
    async with house.running():
        assert [await house.keys.verify(token) for _ in range(3)] == [GRANT] * 3
    assert house.hasher.calls == [token]
    assert house.store.lookups == [lookup_prefix(token)]
    assert (house.verdicts.hits, house.verdicts.misses) == (2, 1)


async def test_a_grant_is_at_hand_where_its_token_was_verified_of_late(house: House) -> None:
    token = house.token()
    async with house.running():
        assert house.keys.granted(token) is None
        assert await house.keys.verify(token) == GRANT
        assert house.keys.granted(token) == GRANT
        assert house.verdicts.used == {GRANT.key_id}
        # What is not asked for is no miss.
        assert (house.verdicts.hits, house.verdicts.misses) == (1, 1)
        house.keys.evict(Eviction(GRANT.key_id))
        assert house.keys.granted(token) is None
        assert await house.keys.verify(new_token("write")) is None
    for nobody in ("no token", "", new_token("write")):
        assert house.keys.granted(nobody) is None


async def test_an_unknown_token_is_refused_and_from_then_on_without_the_store(house: House) -> None:
    async with house.running():
        token = new_token("write")
        assert [await house.keys.verify(token) for _ in range(3)] == [None] * 3
    assert len(house.store.lookups) == 1


async def test_a_token_with_the_prefix_of_another_is_refused(house: House) -> None:
    token = house.token()
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    async with house.running():
        assert await house.keys.verify(forged) is None
        assert await house.keys.verify(token) == GRANT


async def test_who_holds_a_revoked_key_is_told_so_and_nobody_else_is(house: House) -> None:
    token = house.token()
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    house.revoke("k1")
    async with house.running():
        assert [await house.keys.verify(token) for _ in range(3)] == [WasRevoked()] * 3
        assert [await house.keys.verify(forged) for _ in range(3)] == [None] * 3
    # Remembered like any other refusal, and bought at the price of one hash either way; a wrong guess
    # behind a proven key costs none.
    assert house.hasher.calls == [token]
    assert len(house.store.lookups) == 2
    assert house.verdicts.last_known(token) is None


@pytest.mark.parametrize("revoked", [True, False])
async def test_a_guess_costs_the_same_behind_a_living_and_a_revoked_key(house: House, revoked: bool) -> None:
    token = house.token()
    if revoked:
        house.revoke("k1")
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    async with house.running():
        assert await house.keys.verify(forged) is None
    assert house.hasher.calls == [forged]
    assert len(house.store.lookups) == 1


async def test_two_keys_behind_one_prefix_are_told_apart(house: House) -> None:
    token = house.token()
    twin = token[:-1] + ("A" if token[-1] != "A" else "B")
    house.store.add(twin, Grant("k2", 8, "query"))
    async with house.running():
        assert await house.keys.verify(twin) == Grant("k2", 8, "query")
        assert await house.keys.verify(token) == GRANT


@pytest.mark.parametrize("text", ["", "svc_w_", "svc_x_" + "a" * 22, "svc_w_" + "a" * 23, "Bearer"])
async def test_a_text_that_is_no_token_touches_nothing(house: House, text: str) -> None:
    assert await house.keys.verify(text) is None
    assert house.receive.statistics().current_buffer_used == 0
    assert snapshot(house.verdicts) == {
        "known": 0,
        "hits": 0,
        "misses": 0,
        "refused_full": 0,
        "refused_guesses": 0,
    }


async def test_many_who_ask_for_one_token_share_one_look_up_and_one_hash(house: House) -> None:
    token, house.store.gate = house.token(), trio.Event()
    async with house.running() as nursery:
        async with trio.open_nursery() as askers:
            for _ in range(50):
                askers.start_soon(house.ask, token)
            await wait_all_tasks_blocked()
            assert house.answers == []
            house.store.gate.set()
        nursery.cancel_scope.cancel()
    assert house.answers == [GRANT] * 50
    assert (len(house.store.lookups), house.hasher.calls) == (1, [token])


async def test_hashes_never_take_more_threads_than_allowed(house: House) -> None:
    house.hasher.gate = threading.Event()
    tokens = [house.token(Grant(f"k{number}", 7, "write")) for number in range(3 * HASHERS)]
    async with house.running():
        async with trio.open_nursery() as askers:
            for token in tokens:
                askers.start_soon(house.ask, token)
            await until(lambda: house.hasher.at_once == HASHERS)
            await wait_all_tasks_blocked()
            house.hasher.gate.set()
        assert len(house.answers) == len(tokens)
        assert all(isinstance(answer, Grant) for answer in house.answers)
    assert house.hasher.most_at_once == HASHERS


# Guesses under the prefix of a key.


def guesses(token: str) -> Iterator[str]:
    """Wrong tokens under the prefix of a right one."""
    for number in itertools.count():
        yield token[:14] + f"{number:014d}"


async def test_the_right_token_gets_through_while_others_guess_under_its_prefix(
    house: House, mock_clock: MockClock
) -> None:
    token, flooders = house.token(), ("192.0.2.1", "192.0.2.2")
    wrong = guesses(token)
    async with house.running():
        # Far more in each second than may be hashed, for longer than any window.
        for _ in range(30):
            for place in flooders:
                for _ in range(20):
                    await house.ask(next(wrong), place)
            mock_clock.jump(1.0)
        assert set(house.answers) == {None, Busy()}
        windows = 30.0 / GUESSES_WINDOW_S
        assert len(house.hasher.calls) <= windows * GUESSES_SHARED
        for place in flooders:
            for _ in range(20):
                await house.ask(next(wrong), place)
        assert await house.keys.verify(token, place="198.51.100.1") == GRANT
        # From now on a wrong token costs nothing, and says nothing.
        hashed = len(house.hasher.calls)
        assert await house.keys.verify(next(wrong), place=flooders[0]) is None
        assert len(house.hasher.calls) == hashed


async def test_one_place_that_guesses_leaves_runs_for_others_and_has_its_own_again(
    house: House, mock_clock: MockClock
) -> None:
    token = house.token()
    wrong = guesses(token)
    async with house.running():
        answers = [await house.keys.verify(next(wrong), place="one") for _ in range(GUESSES_OF_PLACE + 1)]
        assert answers == [None] * GUESSES_OF_PLACE + [Busy()]
        assert house.verdicts.guesses.refused == 1
        # Nobody's token is called wrong unread: the right one is told to come again too.
        assert await house.keys.verify(token, place="one") == Busy()
        mock_clock.jump(GUESSES_WINDOW_S)
        assert await house.keys.verify(token, place="one") == GRANT


async def test_a_token_that_several_places_ask_for_is_hashed_once_for_the_one_that_may(
    house: House,
) -> None:
    token, house.store.gate = house.token(), trio.Event()
    wrong = guesses(token)
    for _ in range(GUESSES_OF_PLACE):
        assert house.verdicts.guesses.may_run(lookup_prefix(next(wrong)), ["crowded"])
    async with house.running(), trio.open_nursery() as askers:
        askers.start_soon(house.ask, token, "crowded")
        await wait_all_tasks_blocked()
        askers.start_soon(house.ask, token, "elsewhere")
        await wait_all_tasks_blocked()
        house.store.gate.set()
    assert (house.answers, house.hasher.calls) == ([GRANT] * 2, [token])


@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.lists(st.integers(0, 30).map(str), min_size=1, max_size=3)),
        max_size=200,
    )
)
def test_runs_under_a_prefix_are_bounded_by_place_and_in_all_and_spare_the_newcomer(
    asked: list[tuple[float, list[str]]],
) -> None:
    now_s = 0.0
    limiter = GuessLimiter(lambda: now_s)
    runs: list[float] = []
    for wait_s, places in asked:
        now_s += wait_s
        if limiter.may_run("prefix", places):
            runs.append(now_s)
        recent = [run_at for run_at in runs if run_at > now_s - GUESSES_WINDOW_S]
        assert len(recent) <= GUESSES_BOUND
        if len(recent) < GUESSES_BOUND:
            # Asked of a copy: whoever has had none may have one.
            assert copy.deepcopy(limiter).may_run("prefix", ["newcomer"])


# How long an answer is believed.


@pytest.mark.parametrize(("known", "ttl_s"), [(True, POSITIVE_TTL_S), (False, NEGATIVE_TTL_S)])
async def test_a_verdict_lives_its_time_and_no_longer(
    house: House, mock_clock: MockClock, known: bool, ttl_s: float
) -> None:
    token = house.token() if known else new_token("write")
    expected = GRANT if known else None
    async with house.running():
        assert await house.keys.verify(token) == expected
        mock_clock.jump(ttl_s - 0.01)
        assert await house.keys.verify(token) == expected
        assert len(house.store.lookups) == 1
        mock_clock.jump(0.01)
        assert await house.keys.verify(token) == expected
        assert len(house.store.lookups) == 2


async def test_a_hit_does_not_lengthen_a_verdict(house: House, mock_clock: MockClock) -> None:
    token = house.token()
    async with house.running():
        await house.keys.verify(token)
        for _ in range(4):
            mock_clock.jump(POSITIVE_TTL_S / 4)
            await house.keys.verify(token)
    assert len(house.store.lookups) == 2


def test_the_table_is_bounded_and_the_oldest_goes_first() -> None:
    verdicts = Verdicts(clock=lambda: 0.0)
    for number in range(VERDICTS_BOUND + 10):
        verdicts.put(f"token{number}", None)
    assert len(verdicts) == VERDICTS_BOUND
    assert verdicts.find("token9") is None
    assert verdicts.find("token10") is not None


def test_a_verdict_that_was_renewed_is_not_the_oldest() -> None:
    verdicts = Verdicts(clock=lambda: 0.0)
    for number in range(VERDICTS_BOUND):
        verdicts.put(f"token{number}", None)
    verdicts.put("token0", None)
    verdicts.put("one more", None)
    assert verdicts.find("token0") is not None
    assert verdicts.find("token1") is None


# Evicting.

GRANTS = st.builds(
    Grant, st.sampled_from(["k1", "k2", "k3"]), st.sampled_from([1, 2]), st.sampled_from(["write", "query"])
)


@given(
    st.dictionaries(st.text(min_size=1), st.none() | GRANTS, max_size=8),
    st.builds(Eviction, st.none() | st.sampled_from(["k1", "k2"]), st.none() | st.sampled_from([1, 2])),
)
def test_an_eviction_takes_what_it_names_and_nothing_else(
    table: dict[str, Grant | None], notice: Eviction
) -> None:
    verdicts = Verdicts(clock=lambda: 0.0)
    for token, grant in table.items():
        verdicts.put(token, grant)
    verdicts.evict(notice)
    everything = notice == Eviction()
    for token, grant in table.items():
        named = grant is not None and (grant.key_id == notice.key_id or grant.project_id == notice.project_id)
        assert (verdicts.find(token) is None) is (everything or named)


async def test_a_revoked_key_is_refused_on_the_next_request(house: House) -> None:
    token, other = house.token(), house.token(Grant("k2", 7, "query"))
    async with house.running():
        assert await house.keys.verify(token) == GRANT
        assert await house.keys.verify(other) is not None
        house.revoke("k1")
        assert await house.keys.verify(token) == WasRevoked()
        assert await house.keys.verify(other) is not None
    assert len(house.store.lookups) == 3


@pytest.mark.parametrize("where", ["look-up", "hash"])
async def test_a_key_revoked_during_its_check_does_not_come_back(house: House, where: str) -> None:
    token = house.token()
    store_gate, hash_gate = trio.Event(), threading.Event()
    if where == "look-up":
        house.store.gate = store_gate
    else:
        house.hasher.gate = hash_gate
    async with house.running():
        async with trio.open_nursery() as askers:
            askers.start_soon(house.ask, token)
            await until(lambda: house.store.lookups if where == "look-up" else house.hasher.at_once)
            house.revoke("k1")
            store_gate.set()
            hash_gate.set()
        assert house.answers == [WasRevoked()]
        assert await house.keys.verify(token) == WasRevoked()


async def test_a_check_read_again_does_not_hash_again(house: House) -> None:
    token = house.token()
    evictions = [Eviction(key_id="another")] * (ROUNDS - 1)

    def evict_one() -> None:
        if evictions:
            house.keys.evict(evictions.pop())

    house.store.on_lookup = evict_one
    async with house.running():
        assert await house.keys.verify(token) == GRANT
    assert (len(house.store.lookups), house.hasher.calls) == (ROUNDS, [token])


async def test_a_check_that_evictions_never_let_finish_ends_busy_and_is_not_remembered(house: House) -> None:
    token = house.token()
    house.store.on_lookup = lambda: house.keys.evict(Eviction())
    async with house.running():
        assert await house.keys.verify(token) == Busy()
        assert len(house.store.lookups) == ROUNDS
        house.store.on_lookup = lambda: None
        assert await house.keys.verify(token) == GRANT


def test_a_key_revoked_at_any_await_of_its_check_is_refused_afterwards() -> None:
    async def scenario(strike: Strike) -> None:
        house = House()
        token = house.token()

        async def drive() -> None:
            for _ in range(2):
                await house.ask(token)
                if strike.fell:
                    assert await house.keys.verify(token) == WasRevoked()
            house.send.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive)
            await strike.run(house.cache().run, partial(house.revoke, "k1"))
        assert strike.fell or house.answers == [GRANT, GRANT]

    assert at_every_await(scenario, autojump=False) >= 6


# Busy: full, away, silent.


async def test_a_full_mailbox_answers_busy_at_once_and_counts_it(mock_clock: MockClock) -> None:
    house = House(bound=2)
    async with trio.open_nursery() as askers:
        for _ in range(2):
            askers.start_soon(house.ask, house.token())
        await wait_all_tasks_blocked()
        assert await house.keys.verify(house.token()) == Busy()
        assert house.verdicts.refused_full == 1
        askers.cancel_scope.cancel()


async def test_more_checks_than_the_bound_are_not_begun(house: House) -> None:
    house.store.gate = trio.Event()
    first = new_token("write")
    async with house.running():
        async with trio.open_nursery() as askers:
            askers.start_soon(house.ask, first)
            for _ in range(FLIGHTS_BOUND - 1):
                askers.start_soon(house.ask, new_token("write"))
                await trio.lowlevel.checkpoint()
            await wait_all_tasks_blocked()
            assert await house.keys.verify(new_token("write")) == Busy()
            assert (len(house.store.lookups), house.verdicts.refused_full) == (FLIGHTS_BOUND, 1)
            # Joining a check that is under way costs nothing and is always possible.
            askers.start_soon(house.ask, first)
            await wait_all_tasks_blocked()
            house.store.gate.set()
        assert house.answers == [None] * (FLIGHTS_BOUND + 1)
        assert await house.keys.verify(new_token("write")) is None


async def test_an_unanswered_question_is_busy_after_its_time(house: House, mock_clock: MockClock) -> None:
    async with trio.open_nursery() as askers:
        askers.start_soon(house.ask, house.token())
        await wait_all_tasks_blocked()
        mock_clock.jump(VERIFY_TIMEOUT_S - 0.01)
        await wait_all_tasks_blocked()
        assert house.answers == []
        mock_clock.jump(0.01)
    assert house.answers == [Busy()]


async def test_an_outage_is_busy_at_once_shown_and_not_remembered(house: House) -> None:
    token = house.token()
    house.store.troubles = [Outage("the database is away")]
    async with house.running():
        assert await house.keys.verify(token) == Busy()
        assert house.vitals.snapshot()["waiting_for"] == "the database is away"
        assert await house.keys.verify(token) == GRANT
        assert house.vitals.snapshot() == {"state": "running", "crashes": 0}


async def test_known_tokens_are_verified_while_the_store_is_away(house: House) -> None:
    token = house.token()
    async with house.running():
        await house.keys.verify(token)
        house.store.troubles = [Outage("the database is away")]
        assert await house.keys.verify(token) == GRANT
        assert house.store.troubles


async def test_an_asker_that_hangs_up_does_not_stop_the_check(house: House) -> None:
    token, house.store.gate = house.token(), trio.Event()
    async with house.running():
        async with trio.open_nursery() as askers:
            askers.start_soon(house.ask, token)
            await wait_all_tasks_blocked()
            askers.cancel_scope.cancel()
        house.store.gate.set()
        await until(lambda: len(house.verdicts))
        assert await house.keys.verify(token) == GRANT
    assert len(house.store.lookups) == 1


# Crashes, closing, cancelling.


@pytest.mark.errors_expected
async def test_a_crash_tells_everyone_in_hand_at_once_and_the_next_life_answers(house: House) -> None:
    held, crashing = house.token(), new_token("write")
    house.store.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, house.cache, house.vitals))
        before = trio.current_time()
        async with trio.open_nursery() as askers:
            for _ in range(3):
                askers.start_soon(house.ask, held)
            await wait_all_tasks_blocked()
            house.store.troubles = [RuntimeError("a bug")]
            askers.start_soon(house.ask, crashing)
        # Nobody waited for a deadline.
        assert trio.current_time() - before < VERIFY_TIMEOUT_S / 2
        assert house.answers == [Busy()] * 4
        assert (house.vitals.crashes, house.vitals.alive) == (1, False)
        # A question that comes between two lives waits in the mailbox for the next one.
        house.store.gate = None
        assert await house.keys.verify(held) == GRANT
        nursery.cancel_scope.cancel()


@pytest.mark.errors_expected
async def test_a_crash_of_the_hash_is_a_crash_and_not_a_refusal(house: House) -> None:
    house.hasher.trouble = ValueError("Invalid salt")
    token = house.token()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, house.cache, house.vitals))
        assert await house.keys.verify(token) == Busy()
        assert (len(house.verdicts), house.vitals.crashes) == (0, 1)
        nursery.cancel_scope.cancel()


async def test_a_closed_mailbox_ends_the_cache_and_makes_the_handle_busy(house: House) -> None:
    token = house.token()
    async with trio.open_nursery() as nursery:
        await nursery.start(house.cache().run)
        assert await house.keys.verify(token) == GRANT
        house.send.close()
    # What is known is still answered; what is not cannot be asked.
    assert await house.keys.verify(token) == GRANT
    assert await house.keys.verify(new_token("write")) == Busy()


async def test_closing_tells_the_questions_in_hand_at_once(house: House) -> None:
    house.store.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(house.cache().run)
        nursery.start_soon(house.ask, house.token())
        await wait_all_tasks_blocked()
        house.send.close()
    assert house.answers == [Busy()]


def test_a_cache_cancelled_at_any_await_leaves_no_asker_hanging_and_forgets_no_use() -> None:
    async def scenario(strike: Strike) -> None:
        house = House()
        token, other = house.token(), house.token(Grant("k2", 7, "query"))
        unknown = new_token("write")

        async def drive() -> None:
            before = trio.current_time()
            async with trio.open_nursery() as askers:
                for each in (token, token, other, unknown):
                    askers.start_soon(house.ask, each)
            # Nobody waited for a deadline.
            assert trio.current_time() - before < VERIFY_TIMEOUT_S / 2
            await wait_all_tasks_blocked()
            strike.clock.jump(NOTE_USED_S)
            await wait_all_tasks_blocked()
            house.send.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive)
            await strike.run(house.cache().run)
            if strike.fell:
                # What still lay in the mailbox is for the next incarnation.
                await house.cache().run()
        assert len(house.answers) == 4
        granted = {answer.key_id for answer in house.answers if isinstance(answer, Grant)}
        assert strike.fell or granted == {"k1", "k2"}
        assert granted <= {key_id for used in house.store.noted for key_id in used}
        assert house.verdicts.used == set()

    assert at_every_await(scenario, autojump=False) >= 15


# "Last used".


async def test_last_used_is_written_once_a_minute_however_often_a_key_is_used(
    house: House, mock_clock: MockClock
) -> None:
    token, other = house.token(), house.token(Grant("k2", 7, "query"))
    async with house.running():
        for _ in range(5):
            await house.keys.verify(token)
            await house.keys.verify(other)
        await house.keys.verify(new_token("write"))
        mock_clock.jump(NOTE_USED_S - 0.01)
        await wait_all_tasks_blocked()
        assert house.store.noted == []
        mock_clock.jump(0.01)
        await wait_all_tasks_blocked()
        assert house.store.noted == [{"k1": NOW, "k2": NOW}]
        # A minute without a use writes nothing.
        mock_clock.jump(NOTE_USED_S)
        await wait_all_tasks_blocked()
        assert len(house.store.noted) == 1
        await house.keys.verify(token)
        mock_clock.jump(NOTE_USED_S)
        await wait_all_tasks_blocked()
        assert house.store.noted[1:] == [{"k1": NOW}]


async def test_a_use_that_the_table_answered_counts(house: House, mock_clock: MockClock) -> None:
    token = house.token()
    async with house.running():
        mock_clock.jump(NOTE_USED_S / 2)
        await house.keys.verify(token)
        mock_clock.jump(NOTE_USED_S / 2)
        await wait_all_tasks_blocked()
        await house.keys.verify(token)
        assert len(house.store.lookups) == 1
        mock_clock.jump(NOTE_USED_S)
        await wait_all_tasks_blocked()
    assert house.store.noted == [{"k1": NOW}, {"k1": NOW}]


async def test_last_used_outlives_an_outage(house: House, mock_clock: MockClock) -> None:
    token = house.token()
    house.store.note_troubles = [Outage("away")] * 2
    async with house.running():
        await house.keys.verify(token)
        for _ in range(3):
            assert house.store.noted == []
            mock_clock.jump(NOTE_USED_S)
            await wait_all_tasks_blocked()
        assert house.store.noted == [{"k1": NOW}]


@pytest.mark.errors_expected
async def test_last_used_outlives_a_crash_elsewhere_while_it_is_written(
    house: House, mock_clock: MockClock
) -> None:
    token, house.store.note_gate = house.token(), trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, house.cache, house.vitals))
        await wait_all_tasks_blocked()
        await house.keys.verify(token)
        mock_clock.jump(NOTE_USED_S)
        await wait_all_tasks_blocked()
        house.store.troubles = [RuntimeError("a bug")]
        nursery.start_soon(house.ask, new_token("write"))
        await wait_all_tasks_blocked()
        assert house.store.noted == []
        house.store.note_gate.set()
        await wait_all_tasks_blocked()
        assert (house.answers, house.vitals.crashes) == ([Busy()], 1)
        assert house.store.noted == [{"k1": NOW}]
        nursery.cancel_scope.cancel()


async def test_last_used_is_written_at_the_end(house: House) -> None:
    async with house.running():
        await house.keys.verify(house.token())
        assert house.store.noted == []
    assert house.store.noted == [{"k1": NOW}]


async def test_a_silent_store_holds_the_end_up_for_a_second_at_most(
    house: House, autojump_clock: MockClock
) -> None:
    house.store.note_gate = trio.Event()
    house.verdicts.put(house.token(), GRANT)
    before = trio.current_time()
    async with house.running():
        pass
    assert trio.current_time() - before == pytest.approx(1.0)


# Revocations.


@asynccontextmanager
async def listening(house: House) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, house.listener, house.vitals))
        yield nursery
        nursery.cancel_scope.cancel()


def knowing(house: House) -> Verdicts:
    """The table, filled: two keys of project 7, one of project 8, one refusal."""
    for key_id, project_id in (("k1", 7), ("k2", 7), ("k3", 8)):
        house.verdicts.put(key_id, Grant(key_id, project_id, "write"))
    house.verdicts.put("nobody", None)
    return house.verdicts


def known(verdicts: Verdicts) -> set[str]:
    return {token for token in ("k1", "k2", "k3", "nobody") if verdicts.find(token) is not None}


@pytest.mark.parametrize(
    ("notice", "left"),
    [
        (Eviction(key_id="k1"), {"k2", "k3", "nobody"}),
        (Eviction(project_id=7), {"k3", "nobody"}),
        (Eviction(key_id="elsewhere"), {"k1", "k2", "k3", "nobody"}),
        (Eviction(), set()),
    ],
)
async def test_news_evict_what_they_name(
    house: House, autojump_clock: MockClock, notice: Eviction, left: set[str]
) -> None:
    async with listening(house):
        knowing(house)
        house.store.lines[0].send_nowait(notice)
        await wait_all_tasks_blocked()
        assert known(house.verdicts) == left


async def test_what_was_known_before_the_line_stood_is_forgotten(
    house: House, autojump_clock: MockClock
) -> None:
    knowing(house)
    async with listening(house):
        assert len(house.verdicts) == 0
        assert house.vitals.state == "running"


async def test_a_lost_line_makes_it_forget_everything_at_once_and_listen_again(
    house: House, autojump_clock: MockClock
) -> None:
    async with listening(house):
        knowing(house)
        house.store.lines[0].close()
        house.store.line_troubles = [Outage("still away")] * 2
        await wait_all_tasks_blocked()
        assert len(house.verdicts) == 0
        assert house.vitals.snapshot()["waiting_for"] == "the line is dead"
        await trio.sleep(1.5)
        assert house.vitals.snapshot()["waiting_for"] == "still away"
        # What is verified meanwhile cannot be trusted either once the line stands again.
        knowing(house)
        await trio.sleep(2.0)
        assert house.vitals.snapshot() == {"state": "running", "crashes": 0}
        assert len(house.verdicts) == 0
        knowing(house)
        house.store.lines[0].send_nowait(Eviction(key_id="k1"))
        await wait_all_tasks_blocked()
        assert known(house.verdicts) == {"k2", "k3", "nobody"}


async def test_a_lost_line_voids_the_checks_in_flight(house: House) -> None:
    token, house.store.gate = house.token(), trio.Event()
    async with listening(house), house.running():
        async with trio.open_nursery() as askers:
            askers.start_soon(house.ask, token)
            await wait_all_tasks_blocked()
            # WasRevoked by another process, whose notice is never heard.
            house.store.records.clear()
            house.store.lines[0].close()
            await wait_all_tasks_blocked()
            house.store.gate.set()
        assert house.answers == [None]


@pytest.mark.errors_expected
async def test_after_a_crash_the_news_forget_everything(house: House, autojump_clock: MockClock) -> None:
    async with listening(house):
        knowing(house)
        house.store.lines[0].send_nowait(ValueError("no such notice"))
        await trio.sleep(1.0)
        assert (house.vitals.state, house.vitals.crashes) == ("running", 1)
        assert len(house.verdicts) == 0


def test_news_cancelled_at_any_await_hang_up() -> None:
    async def scenario(strike: Strike) -> None:
        house = House()
        house.store.line_troubles = [Outage("away")]

        async def listen() -> None:
            with trio.move_on_after(3.0):
                await keep(house.listener, house.vitals)

        async def talk() -> None:
            await trio.sleep(1.5)
            for line in house.store.lines:
                line.send_nowait(Eviction(key_id="k1"))
                line.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            await strike.run(listen)
            nursery.cancel_scope.cancel()
        assert house.store.lines == []

    assert at_every_await(scenario) >= 6


# Secrets.


async def test_neither_token_nor_hash_is_shown(house: House, caplog: pytest.LogCaptureFixture) -> None:
    token = house.token()
    [(prefix, record)] = house.store.records
    shown = repr((Verify(token, Reply()), record, house.keys, house.cache(), house.verdicts))
    assert token not in shown
    assert prefix not in shown
    house.store.troubles = [Outage("away")]
    caplog.set_level("DEBUG", logger="actors.keys")
    async with house.running():
        await house.keys.verify(token)
        await house.keys.verify(token)
    assert prefix not in caplog.text
    assert not any(token.encode() in digest for digest in house.verdicts._table)


async def test_a_key_that_worked_goes_on_working_while_the_store_is_away(
    house: House, autojump_clock: MockClock
) -> None:
    token = house.token()
    # Known from before; a first check would run in a thread, which a clock that jumps does not wait for.
    house.verdicts.put(token, GRANT)
    async with house.running():
        # A lost connection: every verdict expires, and the store cannot be asked.
        house.keys.evict(Eviction())
        house.store.troubles = [Outage("away")] * 2
        asked = len(house.store.lookups)
        assert [await house.keys.verify(token) for _ in range(5)] == [GRANT] * 5
        assert len(house.store.lookups) == asked + 1
        await trio.sleep(OUTAGE_TTL_S)
        assert await house.keys.verify(token) == GRANT
        assert len(house.store.lookups) == asked + 2


async def test_a_key_that_never_worked_is_busy_while_the_store_is_away(house: House) -> None:
    async with house.running():
        house.store.troubles = [Outage("away")]
        assert await house.keys.verify(house.token()) == Busy()


async def test_a_key_revoked_by_name_is_not_honoured_during_an_outage(house: House) -> None:
    token = house.token()
    async with house.running():
        assert await house.keys.verify(token) == GRANT
        house.keys.evict(Eviction(key_id=GRANT.key_id))
        house.store.troubles = [Outage("away")]
        assert await house.keys.verify(token) == Busy()


async def test_a_key_revoked_during_an_outage_is_refused_once_the_store_is_back(
    house: House, autojump_clock: MockClock
) -> None:
    token = house.token()
    house.verdicts.put(token, GRANT)
    async with house.running():
        house.keys.evict(Eviction())
        house.store.troubles = [Outage("away")]
        assert await house.keys.verify(token) == GRANT
        house.store.records = []
        # The connection for key notices stands again.
        house.keys.evict(Eviction())
        assert await house.keys.verify(token) is None
