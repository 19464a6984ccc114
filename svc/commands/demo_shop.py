"""The shop of the demo's story: an assistant that answers customers, sums tickets up and sorts them.

Owns: `shop_session`, the traces of one session, and the three faults planted in the last week: a tool that
fails for one tenant in a new way, a model that answers another way and slower, and a token inside an answer.
It speaks the GenAI conventions. Called by `demo_story`. Ids and durations come from the session's dice alone,
so that what is added here draws from `Recorder.extras`. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from svc.commands.demo_pictures import receipt
from svc.commands.demo_recorder import (
    CALL_SITE,
    Attributes,
    Recorder,
    StoryTrace,
    as_json,
    call_part,
    chat,
    message,
    picture_part,
    streamed,
    text_part,
)

SERVICE: Final = "shop-assistant"
#: Sessions of a weekday; a weekend has less than half of them, and a trace has about three spans.
SESSIONS: Final = 75
#: Users that come back over the weeks.
USERS: Final = 120
#: Time left until the end, at the second release and at the first trace of each fault.
RELEASED: Final = timedelta(days=11, hours=-9)
SLOWER: Final = timedelta(days=5, hours=-14)
FAILING: Final = timedelta(days=3, hours=-9)
#: The share of the failing tenant's calls that are refused: so many that a fault which begins on a quiet
#: Sunday is dated to it, and its two findings are one case.
REFUSED: Final = 0.9
#: The session whose first answer holds a token.
LEAKING: Final = "demo-2-20"
#: The share of answers that a customer rates, and of those ratings that are bad without a reason.
RATED: Final = 0.08
UNHAPPY: Final = 0.12

_TENANTS: Final = ("northwind", "northwind", "acme", "acme", "globex", "initech", "umbrella", "umbrella")
_FAILING_TENANT: Final = _TENANTS[0]
_OLD_MODEL: Final = "gpt-4o-2024-08-06"
_NEW_MODEL: Final = "gpt-4o-2024-11-20"
_PROMPT: Final = "You help customers of a shop. Look orders up before you answer. Never promise a date."
_QUESTIONS: Final = (
    "Which of my orders is late?",
    "Cancel the blue jacket, please.",
    "Where can I pick up my parcel?",
    "Why was I charged twice in October?",
)
_ANSWERS: Final = (
    "It left the warehouse two days late and arrives on Friday.",
    "Done: it is cancelled and refunded to your card.",
    "Your parcel waits at the corner shop until Saturday, 18:00.",
    "The second charge was a deposit; it went back on the 28th.",
)
_COMPLAINTS: Final = ("It did not even find my order.", "No answer, again.", "I had to call you after all.")
#: The question beside which customers send a picture of their receipt, and how many of them do.
_CHARGED_TWICE: Final = 3
_PICTURED: Final = 0.4
_PRICES_CENTS: Final = (1990, 4990, 8950, 12900)


def shop_session(
    dice: random.Random, started_at: datetime, ends_at: datetime, session: str, user: int
) -> Iterator[StoryTrace]:
    """The traces of a session, one a turn, in a story that ends then."""
    for turn in range(dice.choice((1, 2, 2, 3, 3, 4, 5))):
        yield _trace(dice, started_at, ends_at - started_at, session, user, turn)
        started_at += timedelta(seconds=dice.uniform(20, 120))


def _trace(
    dice: random.Random, started_at: datetime, time_left: timedelta, session: str, user: int, turn: int
) -> StoryTrace:
    tenant = _TENANTS[user % len(_TENANTS)]
    identity: Attributes = {"session.id": session, "user.id": f"user-{user}", "tenant.id": tenant}
    recorder = Recorder(dice, started_at, identity)
    kind = dice.random()
    leak = session == LEAKING and turn == 0
    feedback: list[dict[str, Any]] = []
    if kind < 0.5 or leak:
        refused = _support(
            recorder, turn, failing=time_left <= FAILING and tenant == _FAILING_TENANT, leak=leak
        )
        feedback = _ratings(recorder, f"user-{user}", refused=refused)
    elif kind < 0.8:
        _summary(recorder, _NEW_MODEL if time_left <= SLOWER else _OLD_MODEL)
    else:
        _classification(recorder)
    resource: Attributes = {
        "service.name": SERVICE,
        "service.version": "4.3.0" if time_left <= RELEASED else "4.2.0",
        "deployment.environment.name": "production",
    }
    return StoryTrace(resource, recorder.spans, feedback)


def _support(recorder: Recorder, turn: int, *, failing: bool, leak: bool) -> bool:
    """A model, a tool, an answer. Whether the tool refused."""
    dice = recorder.dice
    which = dice.randrange(4)
    order = 7000 + dice.randrange(900)
    model = ("openai", "gpt-4o-mini", "gpt-4o-mini-2024-07-18")
    site: Attributes = {CALL_SITE: "support"}
    recorder.span(
        "invoke_agent support",
        0.0,
        {**site, "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"},
    )
    call = call_part(f"call-{order}", "lookup_order", {"order": order})
    inputs = [message("system", text_part(_PROMPT)), _question(recorder, which, order)]
    size = 700 + 180 * turn + dice.randrange(120)
    recorder.span("chat gpt-4o-mini", recorder.took(0.9), chat(model, inputs, [call], (size, 512, 28)) | site)
    refused = _lookup(recorder, order, failing=failing)
    answer = _ANSWERS[which]
    if leak:
        # Made here, so that no whole token stands in this file.
        answer += (
            f" (debug: key {'AK' + 'IA'}{''.join(dice.choices('ABCDEFGHJKLMNPQRSTUVWXYZ234567', k=16))})"
        )
    answering = chat(model, [*inputs, message("assistant", call)], [text_part(answer)], (size + 90, 640, 60))
    took_s = recorder.took(1.2)
    recorder.span("chat gpt-4o-mini", took_s, answering | site | streamed(recorder, took_s))
    return refused


def _question(recorder: Recorder, which: int, order: int) -> dict[str, Any]:
    """What the customer asks, some with a picture of the receipt."""
    question = text_part(_QUESTIONS[which])
    if which != _CHARGED_TWICE or recorder.extras.random() >= _PICTURED:
        return message("user", question)
    return message("user", question, picture_part(receipt(order, _PRICES_CENTS[order % 4])))


def _lookup(recorder: Recorder, order: int, *, failing: bool) -> bool:
    """The call of the tool. Whether it was refused."""
    dice = recorder.dice
    refused = failing and dice.random() < REFUSED
    error = "quota of the carrier's service is used up" if refused else None
    if error is None and dice.random() < 0.03:
        error = "the order service did not answer"
    tool: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup_order",
        "gen_ai.tool.call.id": f"call-{order}",
        "gen_ai.tool.call.arguments": as_json({"order": order}),
    }
    if error is None:
        tool["gen_ai.tool.call.result"] = as_json({"order": order, "late": bool(order % 3)})
    else:
        tool["error.type"] = "QuotaExceededError" if refused else "TimeoutError"
    recorder.span("execute_tool lookup_order", recorder.took(0.25), tool, error)
    return refused


def _ratings(recorder: Recorder, user: str, *, refused: bool) -> list[dict[str, Any]]:
    """A thumb of some customers; one whose order was not found gives a bad one and says why."""
    extras = recorder.extras
    if extras.random() >= RATED:
        return []
    is_bad = refused or extras.random() < UNHAPPY
    reason = {"text": extras.choice(_COMPLAINTS)} if refused else {}
    return [recorder.opinion("helpful", author=user, number=0 if is_bad else 1, **reason)]


def _summary(recorder: Recorder, answering: str) -> None:
    """One call of a larger model, which becomes slower when another one answers."""
    dice = recorder.dice
    site: Attributes = {CALL_SITE: "ticket-summary"}
    recorder.span("summarise_ticket", 0.0, {**site, "gen_ai.operation.name": "invoke_workflow"})
    tokens = (1500 + dice.randrange(900), 0, 140 + dice.randrange(60))
    inputs = [
        message("system", text_part("Summarise the ticket as JSON.")),
        message("user", text_part(_QUESTIONS[dice.randrange(4)])),
    ]
    summary = text_part(as_json({"summary": _ANSWERS[dice.randrange(4)], "urgent": False}))
    took_s = recorder.took(4.4 if answering == _NEW_MODEL else 2.2)
    recorder.span(
        "chat gpt-4o", took_s, chat(("openai", "gpt-4o", answering), inputs, [summary], tokens) | site
    )


def _classification(recorder: Recorder) -> None:
    """One call of another maker's model."""
    dice = recorder.dice
    site: Attributes = {CALL_SITE: "intent"}
    recorder.span("classify_intent", 0.0, {**site, "gen_ai.operation.name": "invoke_workflow"})
    inputs = [
        message("system", text_part("Name the intent in one word.")),
        message("user", text_part(_QUESTIONS[dice.randrange(4)])),
    ]
    outputs = [text_part(dice.choice(("delivery", "refund", "account")))]
    model = ("anthropic", "claude-haiku-4-5", "claude-haiku-4-5-20251001")
    recorder.span(
        "chat claude-haiku-4-5", recorder.took(0.5), chat(model, inputs, outputs, (260, 0, 4)) | site
    )
