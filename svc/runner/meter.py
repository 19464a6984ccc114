"""The budget of a run: reserved before each call of a model, charged after it.

Whoever checks afterwards ends above the cap: a call that does not fit at its worst is never made. Where the
model has no price, tokens, turns and time hold alone.

The books are true whenever they are read: a call is booked at its worst from its first byte on, and at what
it used once that is known. A run that is cut off leaves it at the worst, and what was never sent costs
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import msgspec
import trio

from protocol.agents import RunLimits, Spent

#: What the last turn keeps of the time, and the share of a short run that this is at most.
LAST_TURN_S: Final = 120.0
LAST_SHARE: Final = 0.2

#: What so many tokens cost; None where no price is known.
PriceOf = Callable[[Spent], float | None]


def _unread(_booked: Spent) -> None:
    """Nobody reads the books."""


@attrs.define(eq=False)
class Meter:
    """What is left. `begun_s` is on Trio's clock. `books` is called with the total at each change."""

    limits: RunLimits
    price: PriceOf
    books: Callable[[Spent], None] = _unread
    begun_s: float = attrs.field(factory=trio.current_time)
    #: What calls that are over have used.
    spent: Spent = attrs.field(factory=Spent)

    @property
    def left_s(self) -> float:
        """Seconds until the run is over."""
        return self.begun_s + self.limits.seconds - trio.current_time()

    @property
    def late(self) -> bool:
        """Whether only the time of a last turn is left."""
        return self.left_s < min(LAST_TURN_S, self.limits.seconds * LAST_SHARE)

    def worst(self, input_tokens: int, output_tokens: int) -> Spent:
        """What one call uses at its worst: nothing from the cache, all of it written there."""
        plain = Spent(1, input_tokens, output_tokens)
        written = Spent(1, 0, output_tokens, 0, input_tokens)
        costs = [cost for cost in (self.price(plain), self.price(written)) if cost is not None]
        return Spent(1, input_tokens, output_tokens, usd=max(costs) if costs else None)

    def fits(self, *calls: Spent) -> bool:
        """Whether these calls can all be made."""
        total = self.spent
        for call in calls:
            total = total.plus(call)
        within = total.turns <= self.limits.turns and total.tokens <= self.limits.tokens
        return within and (total.usd is None or total.usd <= self.limits.usd)

    def reserve(self, call: Spent) -> None:
        """A call is under way, and may be answered: it is booked at its worst."""
        self.books(self.spent.plus(call))

    def release(self) -> None:
        """It was refused, or never sent: it costs nothing."""
        self.books(self.spent)

    def forfeit(self, call: Spent) -> None:
        """It was lost: it may have been answered, so what was reserved is gone."""
        self.spent = self.spent.plus(call)
        self.books(self.spent)

    def charge(self, used: Spent | None, call: Spent) -> Spent:
        """It was answered. What it used counts, within what was reserved; None: nobody said, so all of that.

        Returns what is charged.
        """
        charged = call if used is None else self._priced(_within(used, call))
        self.spent = self.spent.plus(charged)
        self.books(self.spent)
        return charged

    def _priced(self, used: Spent) -> Spent:
        return msgspec.structs.replace(used, usd=self.price(used))


def _within(used: Spent, most: Spent) -> Spent:
    """What a provider says was used, between nothing and what the call could use."""
    input_left = most.input + most.cache_read + most.cache_write
    buckets = []
    for tokens in (used.input, used.cache_write, used.cache_read):
        buckets.append(min(max(tokens, 0), input_left))
        input_left -= buckets[-1]
    plain_input, cache_write, cache_read = buckets
    return Spent(used.turns, plain_input, min(max(used.output, 0), most.output), cache_read, cache_write)
