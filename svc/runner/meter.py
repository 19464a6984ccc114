"""The budget of a run: reserved before each call of a model, charged after it.

Whoever checks afterwards ends above the cap: a call that does not fit at its worst is never made. Where the
model has no price, tokens, turns and time hold alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import trio

from protocol.agents import RunLimits, Spent

#: What the last turn keeps of the time, and the share of a short run that this is at most.
LAST_TURN_S: Final = 120.0
LAST_SHARE: Final = 0.2

#: What so many tokens cost; None where nobody knows.
PriceOf = Callable[[Spent], float | None]


@attrs.define(eq=False)
class Meter:
    """What is left. `begun_s` is on Trio's clock."""

    limits: RunLimits
    price: PriceOf
    begun_s: float = attrs.field(factory=trio.current_time)
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
        whole = self.spent
        for call in calls:
            whole = whole.plus(call)
        within = whole.turns <= self.limits.turns and whole.tokens <= self.limits.tokens
        return within and (whole.usd is None or whole.usd <= self.limits.usd)

    def charge(self, used: Spent) -> None:
        """A call was made."""
        self.spent = self.spent.plus(
            Spent(used.turns, used.input, used.output, used.cache_read, used.cache_write, self.price(used))
        )

    def charge_worst(self, call: Spent) -> None:
        """A call was lost: it may have been answered, so what was reserved is gone, but for its turn."""
        self.spent = self.spent.plus(
            Spent(0, call.input, call.output, call.cache_read, call.cache_write, call.usd)
        )
