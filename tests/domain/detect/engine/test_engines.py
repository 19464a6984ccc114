"""Laws of both engines: a history may be cut anywhere, and nothing past the watermark is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import msgspec
import pytest

from svc.domain.detect.engine.drift_engine import DriftSettings, DriftState, judge_drift
from svc.domain.detect.engine.rate_engine import RateSettings, RateState, judge_rates
from tests.domain.detect.engine import test_drift_engine, test_rate_engine
from tests.domain.detect.engine.traffic import DAY, START


@attrs.frozen
class Engine:
    """An engine, the field of its alarms, and a history of so many days that is cut every `cut_slots`."""

    judge: Callable[..., Any]
    settings: object
    state: Callable[[int], Any]
    alarms: str
    history: Any
    days: int
    cut_slots: int

    def judged(self, tallies: Any, state: Any, until: int) -> Any:
        return self.judge(tallies, self.settings, state, until)

    @property
    def end(self) -> int:
        return START + self.days * DAY

    @property
    def whole(self) -> Any:
        """All of the history judged from its start, as if live."""
        return self.judged(self.history, self.state(START), self.end)


ENGINES: Final[Mapping[str, Engine]] = {
    "drift": Engine(
        judge_drift, DriftSettings(), DriftState.start, "ups", test_drift_engine.HISTORY, 36, 401
    ),
    "rate": Engine(judge_rates, RateSettings(), RateState.start, "rises", test_rate_engine.HISTORY, 40, 173),
}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))


@every_engine
def test_going_on_from_any_state_is_judging_from_the_start_bit_by_bit(engine: Engine) -> None:
    whole = engine.whole
    assert len(getattr(whole, engine.alarms)) >= 2
    state = engine.state(START)
    alarms = {}
    for until in [*range(START, engine.end, engine.cut_slots), engine.end]:
        step = engine.judged(engine.history.between(state.needs_from, until), state, until)
        # What is stored between two rounds is JSON.
        state = msgspec.json.decode(msgspec.json.encode(step.state), type=type(step.state))
        assert state == step.state
        alarms |= {alarm.fired: alarm for alarm in getattr(step, engine.alarms)}
    assert state == whole.state
    assert tuple(alarms.values()) == getattr(whole, engine.alarms)


@every_engine
def test_every_checkpoint_is_the_state_of_its_midnight(engine: Engine) -> None:
    whole = engine.whole
    assert [state.cursor for state in whole.checkpoints] == [
        START + day * DAY for day in range(1, engine.days + 1)
    ]
    for state in whole.checkpoints[::7]:
        rest = engine.judged(engine.history.between(state.needs_from, engine.end), state, engine.end)
        assert rest.state == whole.state


@every_engine
def test_no_slot_past_the_watermark_is_looked_at(engine: Engine) -> None:
    for days in (5, 9, 25, 30):
        until = START + days * DAY - 100
        ahead = engine.judged(engine.history, engine.state(START), until)
        seen = engine.judged(engine.history.between(START, until), engine.state(START), until)
        assert ahead.state == seen.state
        assert getattr(ahead, engine.alarms) == getattr(seen, engine.alarms)
