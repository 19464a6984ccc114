"""Laws of refusals: what is told helps whoever is told it."""

from __future__ import annotations

from protocol.refusals import TOO_SLOW, UNAVAILABLE, refusal_of
from protocol.storage import Outage, Slow


def test_a_question_that_took_too_long_is_not_invited_to_come_again_at_once() -> None:
    assert refusal_of(Outage("the database is away")) is UNAVAILABLE
    assert refusal_of(Slow("the database did not answer in time")) is TOO_SLOW
    assert UNAVAILABLE.retry_after_s is not None
    assert TOO_SLOW.retry_after_s is None
    assert "ask for less" in TOO_SLOW.message
