"""Labelled traffic: small applications side by side, some of which break in a known way.

Owns what an application is, what may be planted in it, and the spans of its traces in order of time. An
application is a call site with tools of its own, so that what is found tells by its names where it belongs.
Everything is drawn from a seed. `applications` lists those that laws and the bench replay.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import attrs

from tests.wire import event, span

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
    #: The share of model calls that fail.
    model_errors: float | None = None
    creeping: timedelta | None = None
    tool_slower: float = 1.0
    model_slower: float = 1.0
    tokens: float = 1.0
    #: Factor of what is asked alone: the prompt grew.
    prompt: float = 1.0
    model: str | None = None
    malformed: float = 0.0
    looping: float = 0.0
    #: What a malformed answer looks like: cut short, a key renamed, or words around it.
    form: Literal["short", "renamed", "wrapped"] = "short"
    cut: float = 0.0
    #: How the provider says that an answer was cut; blank: the answer is.
    reason: str = "length"
    says: str = ""
    says_share: float = 1.0
    asks: str = ""
    #: What a tool's result holds.
    returns: str = ""
    release: str | None = None

    def grown(self, at: timedelta) -> float:
        """How much of it there is at a moment, 0 to 1."""
        return 1.0 if self.creeping is None else min((at - self.begins) / self.creeping, 1.0)


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
    #: The share of model calls that fail.
    model_errors: float = 0.0
    #: Answers are JSON.
    json: bool = False
    model: str = "gpt-4o-mini"
    provider: str = "openai"
    #: Call sites of the same tools, beside its own.
    beside: tuple[str, ...] = ()
    #: Who tells that a call failed: its status and error type, an exception, or its result.
    told_by: Literal["status", "exception", "result"] = "status"
    dialect: Literal["gen_ai", "openinference"] = "gen_ai"
    #: From which hour on for how long another amount of traffic runs, on which days of the week, how many
    #: times as much, and how many times as long it takes.
    batch: tuple[int, int, frozenset[int], float, float] = (0, 0, frozenset(), 1.0, 1.0)
    #: Every night within this hour so large a share of calls fails.
    maintenance: tuple[int, float] = (0, 0.0)
    #: The share of traces whose children arrive hours later.
    late: float = 0.0
    #: From when on another model answers, which is neither slower nor dearer.
    upgrade: tuple[timedelta, str] | None = None

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
                spans = _Turn(self, dice, at, mood, number).spans
                if self.late and dice.random() < self.late:
                    yield MONDAY + at, spans[:1]
                    yield MONDAY + at + HOUR * (1 + 5 * dice.random()), spans[1:]
                else:
                    yield MONDAY + at, spans

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
        hour, hours, days_of_week, times, _ = self.batch
        if day % 7 in days_of_week:
            more = round(usual * hours / 24 * (times - 1))
            made += [timedelta(days=day, hours=hour + hours * dice.random()) for _ in range(more)]
        return made

    def in_batch(self, at: timedelta) -> bool:
        """Whether the batch runs."""
        hour, hours, days_of_week, _, _ = self.batch
        return at.days % 7 in days_of_week and hour <= at.seconds / 3600 < hour + hours


class _Turn:
    """One trace as it is drawn: an agent that asks a model, which has tools called."""

    def __init__(self, app: App, dice: random.Random, at: timedelta, mood: float, number: int) -> None:
        self.app, self.dice, self.at, self.number = app, dice, at, number
        self.live = [one for one in app.planted if one.begins <= at < one.ends]
        self.site = dice.choice((app.name, *app.beside)) if app.beside else app.name
        self.slower = app.batch[4] if app.in_batch(at) else 1.0
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
            "gen_ai.operation.name": "invoke_agent", "svc.call_site.id": self.site,
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
        usual_s *= self.slower
        return usual_s * self.dice.lognormvariate(self.mood, self.app.noise) if self.app.noise else usual_s

    def _call(self, tool: str) -> bool:
        """One call of a tool. Whether it failed."""
        app, dice = self.app, self.dice
        mine = [one for one in self.live if one.tool in (None, tool)]
        rate, kind = app.tools.get(tool, 0.02), "Timeout"
        if app.maintenance[1] and self.at.seconds // 3600 == app.maintenance[0]:
            rate = app.maintenance[1]
        for one in mine:
            if one.tool_errors is not None:
                new = (one.tool_errors - rate) * one.grown(self.at)
                kind = one.error_type if dice.random() < new / max(rate + new, 1e-9) else kind
                rate += new
        failed = dice.random() < rate
        took_s = self._took(app.tool_s)
        for one in mine:
            took_s *= one.tool_slower
        asked: dict[str, Any] = {"q": self.number}
        result: dict[str, Any] = {"rows": [self.number % 7]}
        for one in self.live:
            if one.asks and dice.random() < one.says_share:
                asked["with"] = one.asks
            if one.returns and dice.random() < one.says_share:
                result["config"] = one.returns
        failure: dict[str, Any] = {}
        match app.told_by if failed else None:
            case "status":
                failure = {"error": kind, "status_code": 2}
            case "exception":
                failure = {"events": [event("exception", {"exception.type": kind})]}
            case "result":
                result = {"isError": True, "content": [{"type": "text", "text": kind}]}
        self._add(
            f"execute_tool {app.tool(tool)}",
            self.passed_s,
            took_s,
            _tool_attributes(app, app.tool(tool), asked, result),
            **failure,
        )
        self.passed_s += took_s
        return failed

    def _model(self) -> None:
        app, dice = self.app, self.dice
        took_s = self._took(app.model_s) * (6 if dice.random() < app.slow_mode else 1)
        tokens = app.tokens * (dice.lognormvariate(0, 0.3) if app.noise else 1.0)
        prompt, model, said, reason = 1.0, app.model, f"answer {self.number}", "stop"
        if app.upgrade is not None and self.at >= app.upgrade[0]:
            model = app.upgrade[1]
        if app.json:
            said = f'{{"answer": "{self.number}", "sure": true}}'
        for one in self.live:
            took_s *= one.model_slower ** one.grown(self.at)
            tokens *= one.tokens ** one.grown(self.at)
            prompt *= one.prompt ** one.grown(self.at)
            model = one.model or model
            if dice.random() < one.malformed:
                said = _malformed(said, one.form)
            if one.says and dice.random() < one.says_share:
                said += f" {one.says}"
            if dice.random() < one.cut:
                reason, said = one.reason, said if one.reason else ""
        attributes = _model_attributes(app, model, int(tokens * prompt), int(tokens) // 4, said, reason)
        error = self._refused()
        if error is not None:
            attributes = {name: value for name, value in attributes.items() if name in _ASKED}
        self._add(
            f"chat {model}",
            self.passed_s,
            took_s,
            attributes | {"svc.call_site.id": self.site},
            error=error,
            status_code=0 if error is None else 2,
        )
        self.passed_s += took_s

    def _refused(self) -> str | None:
        """How the provider refuses a call, None where it answers."""
        rates = [(one.model_errors, one.error_type) for one in self.live if one.model_errors is not None]
        rate, kind = max(rates, default=(self.app.model_errors, "Timeout"))
        # Drawn only where there is a rate, so that all others stay as they were drawn.
        return kind if rate and self.dice.random() < rate else None

    def _add(
        self, name: str, begin_s: float, took_s: float, attributes: dict[str, Any], *, root: bool = False,
        error: str | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        if error is not None:
            attributes = attributes | {"error.type": error}
        release = next((one.release for one in self.live if one.release), None)
        if self.app.releases:
            release = release or f"1.{self.at.days // self.app.releases}"
        if release:
            attributes[RELEASE] = release
        start_ns = int((MONDAY + self.at + timedelta(seconds=begin_s)).timestamp() * 1_000_000) * 1_000
        made = span(
            span_id=self.root_id if root else self.dice.randbytes(8),
            trace_id=self.trace_id,
            parent=b"" if root else self.root_id,
            name=name,
            start_ns=start_ns,
            end_ns=start_ns + int(took_s * 1e9),
            attributes=self.shared | attributes,
            **fields,
        )
        self.spans.insert(0, made) if root else self.spans.append(made)


#: What a call says that got no answer.
_ASKED: Final = frozenset({"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"})


def _malformed(said: str, form: str) -> str:
    if form == "renamed":
        return said.replace('"answer"', '"reply"')
    return f"Sure! Here is what you asked for: {said}" if form == "wrapped" else said[:-8]


def _tool_attributes(app: App, name: str, asked: Any, result: Any) -> dict[str, Any]:
    if app.dialect == "openinference":
        return {
            "openinference.span.kind": "TOOL",
            "tool.name": name,
            "input.value": json.dumps(asked),
            "output.value": json.dumps(result),
        }
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.arguments": asked,
        "gen_ai.tool.call.result": json.dumps(result),
    }


def _model_attributes(
    app: App, model: str, asked: int, answered: int, said: str, reason: str
) -> dict[str, Any]:
    if app.dialect == "openinference":
        return {
            "openinference.span.kind": "LLM",
            "llm.provider": app.provider,
            "llm.model_name": model,
            "llm.token_count.prompt": asked,
            "llm.token_count.completion": answered,
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": said,
        }
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": app.provider,
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.usage.input_tokens": asked,
        "gen_ai.usage.output_tokens": answered,
        "gen_ai.response.finish_reasons": [reason or "stop"],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": said}]}],
    }
