"""The applications that laws and the bench replay, and all of them together as one traffic.

Owns `FAULTS` and `HEALTHY`, which the detectors were built with, and `FOREIGN`, which came later and was
written down before anything of it was run: what other traffic may hold that the first one lacks.
"""

from __future__ import annotations

import heapq
import random
import string
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final
from zlib import crc32

import attrs

from tests.detecting.labelled import DAY, DAYS, DOUBTFUL, HOUR, SECRET, App, Planted

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
    App("refused", 120, (Planted("provider refuses", 20 * DAY + 9 * HOUR, found=("model_error",),
                                 model_errors=0.25, error_type="RateLimitError"),), model_errors=0.02),
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
    App("limited", 120, model_errors=0.06),
    App("tiny", 20),
)


_dice = random.Random(20_261_122)


def _some(n: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_dice.choices(alphabet, k=n))


def _github() -> str:
    body = _some(30)
    rest, written = crc32(body.encode()), ""
    for _ in range(6):
        rest, digit = divmod(rest, 62)
        written = (string.digits + string.ascii_uppercase + string.ascii_lowercase)[digit] + written
    return "ghp_" + body + written


def _steps(name: str, day: float, **kind: Any) -> Planted:
    return Planted(name, day * DAY, **kind)


EVERY_NIGHT: Final = frozenset(range(7))

#: Faults that the detectors were not built with.
FOREIGN_FAULTS: Final = (
    App("rare", 800, (_steps("0.1 to 2 %", 17.4, tool="fetch", tool_errors=0.02),),
        tools={"fetch": 0.001}),
    App("often", 150, (_steps("30 to 60 %", 16.6, tool="scrape", tool_errors=0.6),),
        tools={"scrape": 0.3, "rank": 0.02}),
    App("fifth", 250, (_steps("5 to 15 %", 18.3, tool="quote", tool_errors=0.15, ends=22 * DAY),),
        tools={"quote": 0.05}),
    App("few", 25, (_steps("low traffic", 20.3, tool="fax", tool_errors=1.0, ends=23 * DAY),),
        tools={"fax": 0.01}),
    App("blink", 1_200, (Planted("30 minutes, busy", 18 * DAY + 14 * HOUR, 18 * DAY + 14.5 * HOUR,
                                 tool="geo", tool_errors=0.95),), tools={"geo": 0.01}),
    App("wink", 300, (Planted("30 minutes", 19 * DAY + 10 * HOUR, 19 * DAY + 10.5 * HOUR,
                              tool="tax", tool_errors=1.0, error_type="HTTP 503"),), tools={"tax": 0.01}),
    App("owl", 200, (Planted("at night", 20 * DAY + 1 * HOUR, 20 * DAY + 6 * HOUR, tool="sync",
                             tool_errors=0.9),), tools={"sync": 0.02}),
    App("sunday", 150, (Planted("on a Sunday", 20 * DAY + 9 * HOUR, 21 * DAY, tool="cal",
                                tool_errors=0.5),), tools={"cal": 0.02, "mail": 0.01}, weekend=0.3),
    App("release", 120, (_steps("bad release", 16.55, tool="book", tool_errors=0.25, release="2.0",
                                error_type="KeyError"),), tools={"book": 0.01, "find": 0.02}, releases=40),
    App("except", 150, (_steps("exceptions", 17.5, tool="read", tool_errors=0.3),),
        tools={"read": 0.01}, told_by="exception"),
    App("result", 150, (_steps("in results", 18.5, tool="run", tool_errors=0.3),),
        tools={"run": 0.01}, told_by="result"),
    App("storm", 120, (Planted("retry storm", 19 * DAY + 15 * HOUR, 20 * DAY + 3 * HOUR, tool="pdf",
                               tool_errors=0.9),), tools={"pdf": 0.02, "ocr": 0.02}, retries=4),
    App("pair", 150, (Planted("shared tool", 17 * DAY + 8 * HOUR, 18 * DAY + 8 * HOUR, tool="crm",
                              tool_errors=0.5),), tools={"crm": 0.02}, beside=("pair-two",)),
    App("drag", 150, (_steps("shared tool slower", 18.4, found=("duration_drift",), tool="erp",
                             tool_slower=8.0),), tools={"erp": 0.02}, beside=("drag-two",)),
    App("swapped", 120, (_steps("slower model", 18.6, found=("duration_drift",), model="gpt-4.1-mini",
                                model_slower=1.7),)),
    App("sluggish", 150, (_steps("slowly slower", 15, found=("duration_drift",), model_slower=2.0,
                                 creeping=5 * DAY),)),
    App("seasonal", 150, (_steps("×1.6 with seasons", 19.5, found=("duration_drift",), model_slower=1.6),),
        weekend=0.3, day_noise=0.1),
    App("prompted", 120, (_steps("longer prompts", 18.7, found=("cost_drift",), prompt=3.0),)),
    App("swelling", 120, (_steps("ever longer prompts", 15, found=("cost_drift",), prompt=4.0,
                                 creeping=6 * DAY),)),
    App("claude", 120, (_steps("max_tokens", 19.4, found=("cut_output",), cut=0.25, reason="max_tokens"),),
        provider="anthropic", model="claude-3-5-haiku-latest"),
    App("mute", 120, (_steps("blank", 20.4, found=("cut_output",), cut=0.3, reason=""),)),
    App("spin", 150, (_steps("few loops", 18.8, found=("agent_loop",), looping=0.12),)),
    App("renamed", 120, (_steps("a key renamed", 17.7, found=("malformed_output",), malformed=0.9,
                                form="renamed"),), json=True),
    App("chatty", 120, (_steps("words around JSON", 18.2, found=("malformed_output",), malformed=0.4,
                               form="wrapped"),), json=True),
    App("git", 50, (Planted("GitHub", 22 * DAY + 9 * HOUR, 22 * DAY + 15 * HOUR, found=("secret_leak",),
                            says=_github(), says_share=0.5),)),
    App("stripe", 50, (Planted("Stripe", 23 * DAY + 9 * HOUR, 23 * DAY + 15 * HOUR, found=("secret_leak",),
                               says="sk_" + "live_" + _some(32), says_share=0.5),)),
    App("ant", 50, (Planted("Anthropic", 24 * DAY + 9 * HOUR, 24 * DAY + 15 * HOUR, found=("secret_leak",),
                            says="sk-ant-" + "api03-" + _some(93) + "AA"),)),
    App("pem", 50, (Planted("private key", 25 * DAY + 9 * HOUR, 25 * DAY + 15 * HOUR,
                            found=("secret_leak",),
                            says="-----BEGIN RSA PRIVATE " + "KEY-----\n" + _some(64) + "\n" + _some(64)),)),
    App("dump", 50, (Planted("secret in results", 22 * DAY + 10 * HOUR, 22 * DAY + 14 * HOUR, found=(),
                             returns=SECRET),)),
    App("inference", 150, (_steps("another dialect", 19.6, tool="grep", tool_errors=0.35),),
        tools={"grep": 0.02, "cat": 0.01}, dialect="openinference"),
    App("tardy", 120, (_steps("late spans", 18.9, tool="post", tool_errors=0.3),),
        tools={"post": 0.02}, late=0.1),
)  # fmt: skip

#: Oddities in which nothing is wrong.
FOREIGN_HEALTHY: Final = (
    App("nightly", 100, batch=(2, 2, EVERY_NIGHT, 6.0, 2.0)),
    App("weekly", 120, batch=(20, 4, frozenset({6}), 5.0, 2.5)),
    App("upgraded", 150, upgrade=(17 * DAY, "gpt-4.1-nano")),
    App("steady", 150, tools={"poll": 0.3, "push": 0.001}),
    App("window", 200, tools={"dump": 0.02}, maintenance=(3, 0.5)),
    App("newcomer", 150, new_tool=(15 * DAY, "lens")),
    App("released", 150, releases=3),
    App("mostly", 100, weekend=0.05),
    App("lately", 100, late=0.2),
    App("quiet", 25),
    App("doubled", 50, growth=6.0),
    App("spiky", 150, burst=(16 * DAY + 12 * HOUR, 16 * DAY + 13 * HOUR, 20.0)),
    App("heavy", 120, noise=1.6, day_noise=0.1),
    App("phoenix", 120, dialect="openinference", slow_mode=0.1),
    App("answers", 120, json=True, weekend=0.3),
)

FOREIGN: Final = FOREIGN_FAULTS + FOREIGN_HEALTHY


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
