"""Four weeks of a small application, with what may happen to it: the traffic that laws and benches replay.

A trace is an agent at a call site, a model call and a tool call. `Fault` says what goes wrong from when to
when; everything is drawn from a seed, so that a story told twice is the same one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from tests.wire import span

DAYS: Final = 28
#: A Monday, 00:00.
MONDAY: Final = datetime(2026, 10, 19, tzinfo=UTC)


@attrs.frozen
class Habits:
    """How the application is on a usual day. Sizes are seconds; rates are of traces."""

    a_day: float = 150.0
    tool_errors: Mapping[str, float] = attrs.field(factory=lambda: {"search": 0.02, "pay": 0.01})
    tool_s: float = 0.4
    model_s: float = 1.5
    noise: float = 0.5
    tokens: int = 900
    #: The share of the day's traffic between 8 and 20 o'clock.
    by_day: float = 0.75
    #: Day-to-day noise of durations.
    day_noise: float = 0.0


@attrs.frozen
class Fault:
    """What is different between two moments. Factors multiply what is usual."""

    name: str
    begins: timedelta
    ends: timedelta = timedelta(days=10_000)
    tool: str | None = None
    tool_errors: float | None = None
    error_type: str = "Timeout"
    tool_slower: float = 1.0
    model_slower: float = 1.0
    dearer: float = 1.0
    answered_model: str | None = None
    secret: str | None = None
    traffic: float = 1.0


@attrs.frozen
class Story:
    """The traffic: its seed, habits and faults. `traces` yields the spans of each trace, in order of time."""

    seed: int = 1
    habits: Habits = attrs.field(factory=Habits)
    faults: Sequence[Fault] = ()
    days: int = DAYS
    start: datetime = MONDAY
    site: str = "desk"

    def traces(self) -> Iterator[tuple[datetime, list[Any]]]:
        dice = random.Random(self.seed)
        number = 0
        for day in range(self.days):
            mood = dice.gauss(0, self.habits.day_noise)
            moments = sorted(self._moment(dice, day) for _ in range(self._count(dice, day)))
            for at in moments:
                number += 1
                yield at, self._trace(dice, number, at, mood)

    def _count(self, dice: random.Random, day: int) -> int:
        traffic = self.habits.a_day
        for fault in self._live(self.start + timedelta(days=day, hours=12)):
            traffic *= fault.traffic
        return max(int(dice.gauss(traffic, traffic**0.5)), 0)

    def _moment(self, dice: random.Random, day: int) -> datetime:
        if dice.random() < self.habits.by_day:
            hour = 8 + 12 * dice.random()
        else:
            hour = (20 + 12 * dice.random()) % 24
        return self.start + timedelta(days=day, hours=hour)

    def _live(self, at: datetime) -> list[Fault]:
        return [f for f in self.faults if f.begins <= at - self.start < f.ends]

    def _trace(self, dice: random.Random, number: int, at: datetime, mood: float) -> list[Any]:
        habits, live = self.habits, self._live(at)
        tool = dice.choice(sorted(habits.tool_errors))
        mine = [f for f in live if f.tool in (None, tool)]
        rate = next((f.tool_errors for f in mine if f.tool_errors is not None), habits.tool_errors[tool])
        kind = next((f.error_type for f in mine if f.tool_errors is not None), "Timeout")
        failing = dice.random() < rate
        tool_s = habits.tool_s * dice.lognormvariate(mood, habits.noise)
        model_s = habits.model_s * dice.lognormvariate(mood, habits.noise)
        tokens = habits.tokens * dice.lognormvariate(0, 0.3)
        for fault in live:
            tool_s *= fault.tool_slower if fault in mine else 1.0
            model_s *= fault.model_slower
            tokens *= fault.dearer
        model = next((f.answered_model for f in live if f.answered_model), "gpt-4o")
        said = next((f"here is your key {f.secret}" for f in live if f.secret), f"answer {number}")
        return self._spans(number, at, tool, failing, kind, tool_s, model_s, int(tokens), model, said)

    def _spans(
        self,
        number: int,
        at: datetime,
        tool: str,
        failing: bool,
        kind: str,
        tool_s: float,
        model_s: float,
        tokens: int,
        model: str,
        said: str,
    ) -> list[Any]:
        trace_id = (self.seed * 10_000_000 + number).to_bytes(16, "big")
        shared = {"session.id": f"s{self.seed}-{number // 3}"}
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.response.model": model,
            "gen_ai.usage.input_tokens": tokens,
            "gen_ai.usage.output_tokens": tokens // 4,
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": said}]}],
            "svc.call_site.id": "writer",
        }
        call = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.arguments": {"q": number},
        }
        agent = {"gen_ai.operation.name": "invoke_agent", "svc.call_site.id": self.site}
        error = {"status_code": 2, "attributes": shared | call | {"error.type": kind}}

        def made(index: int, name: str, begin_s: float, took_s: float, parent: int = 0, **fields: Any) -> Any:
            begin = at + timedelta(seconds=begin_s)
            start_ns = int(begin.timestamp() * 1_000_000) * 1_000
            return span(
                span_id=(number * 8 + index).to_bytes(8, "big"),
                trace_id=trace_id,
                parent=(number * 8 + parent).to_bytes(8, "big") if parent else b"",
                name=name,
                start_ns=start_ns,
                end_ns=start_ns + int(took_s * 1e9),
                **fields,
            )

        return [
            made(1, "invoke_agent", 0, tool_s + model_s + 0.1, attributes=shared | agent),
            made(2, "chat gpt-4o", 0.05, model_s, 1, attributes=shared | chat),
            made(
                3,
                f"execute_tool {tool}",
                0.06 + model_s,
                tool_s,
                1,
                **(error if failing else {"attributes": shared | call}),
            ),
        ]
