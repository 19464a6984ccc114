"""Labelled traffic: small applications side by side, some of which break in a known way.

Owns the applications, what is planted in each and when, and the spans of it all in order of time. The bench
replays all of them through the real door, a law a few. An application is a call site with tools of its own,
so that what is found tells by its names where it belongs. Everything is drawn from a seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from tests.wire import span

DAYS: Final = 28
#: A Monday, 00:00.
MONDAY: Final = datetime(2026, 10, 19, tzinfo=UTC)
DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
FOREVER: Final = timedelta(days=10_000)
#: Of a resource; where there is none it is told as a span's last attribute.
RELEASE: Final = "service.version"
SECRET: Final = "AKIA" + "QYLPMN5HHHFPZAM2"
#: A form that leaves room for doubt.
DOUBTFUL: Final = "api_key=" + "q7Zt4Lw9Xk2Vb8Nr3Hd6"


@attrs.frozen
class Planted:
    """What is different in an application between two moments, and what is to be told of it.

    Factors multiply what is usual, shares are of traces. `found` names the detectors of which any must open
    the case; none of them: a finding is right, a case is not. A `creeping` one grows for so long, so that it
    has no moment of onset to be measured by.
    """

    name: str
    begins: timedelta
    ends: timedelta = FOREVER
    found: tuple[str, ...] = ("tool_error",)
    tool: str | None = None
    tool_errors: float | None = None
    error_type: str = "Timeout"
    creeping: timedelta | None = None
    tool_slower: float = 1.0
    model_slower: float = 1.0
    tokens: float = 1.0
    model: str | None = None
    malformed: float = 0.0
    looping: float = 0.0
    cut: float = 0.0
    says: str = ""
    says_share: float = 1.0
    asks: str = ""


@attrs.frozen
class App:
    """An application on a usual day, and what happens to it. Sizes are seconds; rates are of traces."""

    name: str
    a_day: float
    planted: tuple[Planted, ...] = ()
    tools: Mapping[str, float] = attrs.field(factory=lambda: {"search": 0.02, "pay": 0.01})
    tool_s: float = 0.4
    model_s: float = 1.5
    noise: float = 0.5
    tokens: int = 900
    weekend: float = 1.0
    #: The share of the day's traffic between 8 and 20 o'clock.
    by_day: float = 0.75
    #: Day-to-day noise of durations.
    day_noise: float = 0.0
    #: How many times as much traffic there is at the end.
    growth: float = 1.0
    #: From when to when there is another amount of traffic, and how many times as much.
    burst: tuple[timedelta, timedelta, float] = (FOREVER, FOREVER, 1.0)
    first: timedelta = timedelta()
    #: A tool that is called from some moment on.
    new_tool: tuple[timedelta, str] | None = None
    #: How often a failed call is tried again, each time after another answer of the model.
    retries: int = 0
    #: Every so many days another version runs.
    releases: int = 0
    sessions: bool = True
    #: The share of model calls that take six times as long.
    slow_mode: float = 0.0
    #: Answers are JSON.
    json: bool = False
    model: str = "gpt-4o-mini"

    def tool(self, name: str) -> str:
        """The name under which a tool of this application is called."""
        return f"{self.name}-{name}"

    def traces(self, seed: int, days: int) -> Iterator[tuple[datetime, list[Any]]]:
        """The spans of each trace, in order of time."""
        dice = random.Random(f"{seed} {self.name}")
        number = 0
        for day in range(days):
            mood = dice.gauss(0, self.day_noise)
            for at in sorted(self._moments(dice, day, days)):
                number += 1
                yield MONDAY + at, _Turn(self, dice, at, mood, number).spans

    def _moments(self, dice: random.Random, day: int, days: int) -> list[timedelta]:
        usual = self.a_day * self.growth ** (day / days) * (self.weekend if day % 7 >= 5 else 1.0)
        begins, ends, times = self.burst
        most = usual * max(times, 1.0)
        made = []
        for _ in range(max(int(dice.gauss(most, most**0.5) + dice.random()), 0)):
            hour = 8 + 12 * dice.random() if dice.random() < self.by_day else (20 + 12 * dice.random()) % 24
            at = timedelta(days=day, hours=hour)
            share = times if begins <= at < ends else 1.0
            if at >= self.first and dice.random() < share * usual / most:
                made.append(at)
        return made


class _Turn:
    """One trace as it is drawn: an agent that asks a model, which has tools called."""

    def __init__(self, app: App, dice: random.Random, at: timedelta, mood: float, number: int) -> None:
        self.app, self.dice, self.at, self.number = app, dice, at, number
        self.live = [one for one in app.planted if one.begins <= at < one.ends]
        self.shared: dict[str, Any] = {}
        if app.sessions:
            self.shared["session.id"] = f"{app.name}-{number // 3}"
        self.trace_id = dice.randbytes(16)
        self.root_id = dice.randbytes(8)
        self.spans: list[Any] = []
        self.passed_s = 0.05
        self.mood = mood
        self._tell()
        self._add("invoke_agent", 0.0, self.passed_s + 0.05, {
            "gen_ai.operation.name": "invoke_agent", "svc.call_site.id": app.name,
        }, root=True)  # fmt: skip

    def _tell(self) -> None:
        app, dice = self.app, self.dice
        tools = sorted(app.tools)
        if app.new_tool is not None and self.at >= app.new_tool[0]:
            tools.append(app.new_tool[1])
        tool = dice.choice(tools)
        looping = dice.random() < sum(one.looping for one in self.live)
        self._model()
        for _ in range(6 if looping else 1):
            for _ in range(1 + app.retries):
                if not self._call(tool):
                    break
                if app.retries:
                    self._model()

    def _took(self, usual_s: float) -> float:
        return usual_s * self.dice.lognormvariate(self.mood, self.app.noise) if self.app.noise else usual_s

    def _call(self, tool: str) -> bool:
        """One call of a tool. Whether it failed."""
        app, dice = self.app, self.dice
        mine = [one for one in self.live if one.tool in (None, tool)]
        rate, kind = app.tools.get(tool, 0.02), "Timeout"
        for one in mine:
            if one.tool_errors is not None:
                grown = 1.0 if one.creeping is None else min((self.at - one.begins) / one.creeping, 1.0)
                new = (one.tool_errors - rate) * grown
                kind = one.error_type if dice.random() < new / max(rate + new, 1e-9) else kind
                rate += new
        failed = dice.random() < rate
        took_s = self._took(app.tool_s)
        for one in mine:
            took_s *= one.tool_slower
        asked: dict[str, Any] = {"q": self.number}
        for one in self.live:
            if one.asks and dice.random() < one.says_share:
                asked["with"] = one.asks
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": app.tool(tool),
            "gen_ai.tool.call.arguments": asked,
        } | ({"error.type": kind} if failed else {})
        self._add(
            f"execute_tool {app.tool(tool)}",
            self.passed_s,
            took_s,
            attributes,
            status_code=2 if failed else 0,
        )
        self.passed_s += took_s
        return failed

    def _model(self) -> None:
        app, dice = self.app, self.dice
        took_s = self._took(app.model_s) * (6 if dice.random() < app.slow_mode else 1)
        tokens = app.tokens * (dice.lognormvariate(0, 0.3) if app.noise else 1.0)
        model, said, reason = app.model, f"answer {self.number}", "stop"
        if app.json:
            said = f'{{"answer": "{self.number}", "sure": true}}'
        for one in self.live:
            took_s *= one.model_slower
            tokens *= one.tokens
            model = one.model or model
            if dice.random() < one.malformed:
                said = said[:-8]
            if one.says and dice.random() < one.says_share:
                said += f" {one.says}"
            if dice.random() < one.cut:
                reason = "length"
        self._add(f"chat {model}", self.passed_s, took_s, {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            "gen_ai.usage.input_tokens": int(tokens),
            "gen_ai.usage.output_tokens": int(tokens) // 4,
            "gen_ai.response.finish_reasons": [reason],
            "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": said}]}],
            "svc.call_site.id": app.name,
        })  # fmt: skip
        self.passed_s += took_s

    def _add(
        self, name: str, begin_s: float, took_s: float, attributes: dict[str, Any], *, root: bool = False,
        status_code: int = 0,
    ) -> None:  # fmt: skip
        if self.app.releases:
            attributes[RELEASE] = f"1.{self.at.days // self.app.releases}"
        start_ns = int((MONDAY + self.at + timedelta(seconds=begin_s)).timestamp() * 1_000_000) * 1_000
        made = span(
            span_id=self.root_id if root else self.dice.randbytes(8),
            trace_id=self.trace_id,
            parent=b"" if root else self.root_id,
            name=name,
            start_ns=start_ns,
            end_ns=start_ns + int(took_s * 1e9),
            attributes=self.shared | attributes,
            status_code=status_code,
        )
        self.spans.insert(0, made) if root else self.spans.append(made)


FAULTS: Final = (
    App("partly", 300, (Planted("partly", 17 * DAY + 9 * HOUR, 20 * DAY, tool="pay", tool_errors=0.3),)),
    App("totally", 400, (Planted("totally", 19 * DAY + 13 * HOUR, 19 * DAY + 21 * HOUR, tool="search",
                                 tool_errors=0.95),)),
    App("rarely", 60, (Planted("rare tool", 18 * DAY + 8 * HOUR, 18 * DAY + 20 * HOUR, tool="print",
                               tool_errors=1.0),),
        tools={"search": 0.02, "pay": 0.01, "print": 0.0}),
    App("creep", 2_000, (Planted("creep", 15 * DAY, tool="search", tool_errors=0.08, creeping=3 * DAY),),
        tools={"search": 0.04, "pay": 0.01}),
    App("slowtool", 150, (Planted("slow tool", 16 * DAY + 4 * HOUR, found=("duration_drift",), tool="pay",
                                  tool_slower=10.0),)),
    App("slowish", 200, (Planted("model ×1.5", 17 * DAY + 10 * HOUR, found=("duration_drift",),
                                 model_slower=1.5),)),
    App("slow", 100, (Planted("model ×2", 20 * DAY + 3 * HOUR, found=("duration_drift",),
                              model_slower=2.0),)),
    App("dear", 150, (Planted("tokens ×1.6", 16 * DAY + 15 * HOUR, found=("cost_drift",), tokens=1.6),)),
    App("swap", 100, (Planted("dearer model", 21 * DAY + 11 * HOUR, found=("cost_drift",),
                              model="gpt-4o"),)),
    App("broken", 120, (Planted("malformed", 18 * DAY + 12 * HOUR, found=("malformed_output",),
                                malformed=0.3),), json=True),
    App("loop", 120, (Planted("loops", 19 * DAY + 9 * HOUR, found=("agent_loop",), looping=0.25),)),
    App("cut", 100, (Planted("cut off", 22 * DAY + 10 * HOUR, found=("cut_output",), cut=0.3),)),
    App("leak", 50, (Planted("secret", 24 * DAY + 10 * HOUR, 24 * DAY + 12 * HOUR, found=("secret_leak",),
                             says=SECRET),)),
    App("passing", 50, (Planted("secret in arguments", 23 * DAY + 10 * HOUR, 23 * DAY + 14 * HOUR, found=(),
                                asks=DOUBTFUL),)),
    App("newly", 200, (Planted("new failure", 20 * DAY + 9 * HOUR, found=("new_signature", "tool_error"),
                               tool="search", tool_errors=0.35, error_type="QuotaExceeded"),),
        tools={"search": 0.15, "pay": 0.01}),
    App("again", 150, (Planted("retried", 21 * DAY + 9 * HOUR, tool="pay", tool_errors=0.5),), retries=2),
    App("shared", 300, (Planted("first of two", 18 * DAY + 9 * HOUR, 21 * DAY, tool="search",
                                tool_errors=0.3),
                        Planted("second of two", 18 * DAY + 15 * HOUR, 21 * DAY, tool="pay",
                                tool_errors=0.3, error_type="Declined"))),
)  # fmt: skip

HEALTHY: Final = (
    App("weekday", 150, weekend=0.3),
    App("moody", 200, day_noise=0.1),
    App("growing", 100, growth=3.0),
    App("bursting", 80, burst=(19 * DAY + 9 * HOUR, 19 * DAY + 12 * HOUR, 10.0)),
    App("fresh", 80, first=13 * DAY),
    App("tooled", 80, new_tool=(12 * DAY, "map")),
    App("flaky", 150, tools={"search": 0.15, "pay": 0.15}),
    App("tailed", 150, noise=1.3),
    App("holiday", 100, burst=(14 * DAY, 21 * DAY, 0.0)),
    App("deployed", 100, releases=5),
    App("patient", 100, tools={"search": 0.1, "pay": 0.05}, retries=2),
    App("bimodal", 120, slow_mode=0.3),
    App("lonely", 80, sessions=False),
    App("constant", 80, noise=0.0),
    App("tiny", 20),
)


@attrs.frozen
class Traffic:
    """All applications together."""

    seed: int
    apps: tuple[App, ...] = FAULTS + HEALTHY
    days: int = DAYS

    def traces(self) -> Iterator[tuple[datetime, list[Any]]]:
        """The spans of each trace, in order of time."""
        return heapq.merge(*(app.traces(self.seed, self.days) for app in self.apps), key=_by_time)


def _by_time(trace: tuple[datetime, list[Any]]) -> datetime:
    return trace[0]
