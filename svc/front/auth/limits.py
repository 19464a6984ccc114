"""How often something may be tried: counted per name in a sliding window, refused with seconds to wait.

Owns the counts of this process, bounded. Of several copies each tells the others what it counted (`told`) and
learns what they did, a moment later. All verbs are synchronous. Whether somebody is known is found out by the
caller, who may look it up.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable
from hashlib import sha256
from math import ceil
from typing import Final

import attrs
import trio

from protocol.attempts import Change, CountedAttempt, ReportedAttempt

#: Names counted at once, oldest out first.
NAMES_BOUND: Final = 10_000


@attrs.define(eq=False)
class Limit:
    """At most `most` attempts of one name within `window_s`; 0 means any number."""

    most: int
    window_s: float
    clock: Callable[[], float] = trio.current_time
    #: Hears of each change of a count.
    told: Callable[[str, Change], None] = attrs.field(default=lambda _name, _change: None)
    _attempts: OrderedDict[str, deque[float]] = attrs.field(factory=OrderedDict)

    def count(self, name: str) -> int | None:
        """Count one attempt. None when it may go on, else the seconds to wait; a refused one is not
        counted.
        """
        if not self.most:
            return None
        now = self.clock()
        attempts = self._recent(name, now)
        if len(attempts) >= self.most:
            return max(1, ceil(attempts[0] + self.window_s - now))
        attempts.append(now)
        self.told(name, "counted")
        return None

    def forget(self, name: str) -> None:
        """An attempt that succeeded clears its name."""
        if self._attempts.pop(name, None) is not None:
            self.told(name, "forgotten")

    def take_back(self, name: str) -> None:
        """An attempt that succeeded does not count; those before it do."""
        attempts = self._attempts.get(name)
        if attempts:
            attempts.pop()
            self.told(name, "taken_back")

    def learn(self, name: str, change: Change, age_s: float) -> None:
        """What another copy counted so long ago. It may lead beyond the most; nothing is told on."""
        if not self.most:
            return
        now = self.clock()
        if change == "forgotten":
            self._attempts.pop(name, None)
        elif change == "taken_back" and self._attempts.get(name):
            self._attempts[name].pop()
        elif change == "counted" and age_s < self.window_s:
            attempts = self._recent(name, now)
            insort(attempts, now - age_s)
            while len(attempts) > 2 * self.most:
                attempts.popleft()

    def _recent(self, name: str, now: float) -> deque[float]:
        attempts = self._attempts.setdefault(name, deque())
        self._attempts.move_to_end(name)
        while attempts and attempts[0] <= now - self.window_s:
            attempts.popleft()
        while len(self._attempts) > NAMES_BOUND:
            self._attempts.popitem(last=False)
        return attempts


#: How many times as many attempts at its password a place has that an account signed in from before.
KNOWN_FACTOR: Final = 3


@attrs.define(eq=False)
class AttemptLimiter:
    """The limits on password attempts. A place is a client address (`Client.place`).

    Guesses count by place, by account and place, and more widely by account from everywhere. The last two do
    not hold for a place that the account is known at, which has a limit of its own: so a stranger locks
    nobody out, and nobody guesses without end. `refused` counts what was told to wait.
    """

    by_place: Limit
    by_account_here: Limit
    by_account: Limit
    by_account_known: Limit
    refused: int = 0

    @classmethod
    def of(cls, per_place: int, per_account_here: int, per_account: int, window_s: float) -> AttemptLimiter:
        """The limits of the settings; 0 is no limit."""
        return cls(
            Limit(per_place, window_s),
            Limit(per_account_here, window_s),
            Limit(per_account, window_s),
            Limit(per_account_here * KNOWN_FACTOR, window_s),
        )

    def shared(self, tell: Callable[[CountedAttempt], None]) -> None:
        """From now on tell each change of a count; names go out as digests."""
        for label, limit in self._limits().items():

            def told(name: str, change: Change, label: str = label) -> None:
                tell(CountedAttempt(label, bytes.fromhex(name), change))

            limit.told = told

    def learn(self, told: ReportedAttempt) -> None:
        """What another copy counted."""
        limit = self._limits().get(told.what.limit)
        if limit is not None:
            limit.learn(told.what.name.hex(), told.what.change, told.age_s)

    def _limits(self) -> dict[str, Limit]:
        return {
            "place": self.by_place,
            "account here": self.by_account_here,
            "account": self.by_account,
            "account known": self.by_account_known,
        }

    def place(self, place: str) -> int | None:
        """Count an attempt of a place, before anything else: a place refused counts against no account.

        Like all verbs here it returns None when the attempt may go on, else the seconds to wait.
        """
        return self.by_place.count(_digest(place))

    def sign_up(self, account: str, place: str) -> int | None:
        """Count a sign-up, apart from the guesses at the account's password."""
        return self.by_account_here.count(_pair_digest(f"new {account}", place))

    def guess(self, account: str, place: str) -> int | None:
        """Count a guess at an account's password from a place of which nothing is known."""
        wait = self.by_account_here.count(_pair_digest(account, place))
        return self.by_account.count(_digest(account)) if wait is None else wait

    def guess_known(self, account: str, place: str) -> int | None:
        """Count a guess that `guess` told to wait, from a place that the account is known at."""
        return self.by_account_known.count(_pair_digest(account, place))

    def succeeded(self, account: str, place: str, *, as_known: bool) -> None:
        """The guess was right: this place begins anew. What came from elsewhere stays counted."""
        self.by_account_here.forget(_pair_digest(account, place))
        self.by_account_known.forget(_pair_digest(account, place))
        if not as_known:
            self.by_account.take_back(_digest(account))


#: Applications that a place may register, and requests about tokens that may come to nothing, in a window.
REGISTRATIONS: Final = 20
REGISTRATIONS_WINDOW_S: Final = 3600.0
TOKEN_FAILURES: Final = 100
TOKEN_FAILURES_WINDOW_S: Final = 600.0


@attrs.define(eq=False)
class OAuthLimiter:
    """The limits on what applications ask for before anybody let them in, by place.

    A request about a token counts until it has succeeded, so that whoever has a grant is not told to wait for
    having used it. `refused_registrations` and `refused_tokens` count what was told to wait.
    """

    registrations: Limit = attrs.field(factory=lambda: Limit(REGISTRATIONS, REGISTRATIONS_WINDOW_S))
    tokens: Limit = attrs.field(factory=lambda: Limit(TOKEN_FAILURES, TOKEN_FAILURES_WINDOW_S))
    refused_registrations: int = 0
    refused_tokens: int = 0

    def register(self, place: str) -> int | None:
        """Count a registration. None when it may go on, else the seconds to wait."""
        wait_s = self.registrations.count(_digest(place))
        self.refused_registrations += wait_s is not None
        return wait_s

    def ask(self, place: str) -> int | None:
        """Count a request about a token, as `register` counts."""
        wait_s = self.tokens.count(_digest(place))
        self.refused_tokens += wait_s is not None
        return wait_s

    def succeeded(self, place: str) -> None:
        """A request about a token came to something."""
        self.tokens.take_back(_digest(place))


def _pair_digest(account: str, address: str) -> str:
    return _digest(f"{account} {address}")


def _digest(name: str) -> str:
    """What is counted by: nobody needs to know who it was, least of all a table."""
    return sha256(name.encode()).hexdigest()[:32]
