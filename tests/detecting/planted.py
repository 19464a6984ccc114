"""Four weeks of a small application in a store, written as a service writes it, with a cause planted.

`plant` says what of a trace is unlike the others; the case of the finding that a detector would make is made
by hand.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import attrs

from protocol.detection import Cause, Detection, Ref
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.postgres.database import Database
from svc.store.spans.traces import PostgresTraceStore
from tests.store.detection.detecting import opened
from tests.store.spans.test_writing import NOW, PROJECT, one, rows, store_of

ONSET: Final = NOW - timedelta(hours=12)
REFERENCE: Final = (ONSET - timedelta(days=14), ONSET - timedelta(days=1))


@attrs.define
class Story:
    """One trace to be: who asks, what answers, and how its tool fares."""

    number: int
    at: datetime
    after: bool
    dice: random.Random
    tenant: str
    user: str
    release: str = "1.0"
    prompt: str = "You help customers of a shop."
    asked: str = "Where is my order?"
    answering: str = "gpt-4o-2024-08-06"
    failing: bool = False
    took_s: float = 2.0
    tokens: int = 900
    tag: str | None = None

    @property
    def trace_id(self) -> bytes:
        return (self.number * 7919 + 1).to_bytes(16, "big")


Plant = Callable[[Story], None]


def _spans(story: Story) -> list[Any]:
    second = timedelta(seconds=1)
    who = {"user.id": story.user, "session.id": f"s{story.number // 3}", "tenant.id": story.tenant}
    if story.tag is not None:
        who["tag.tags"] = story.tag
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": story.answering,
        "gen_ai.usage.input_tokens": story.tokens,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.input.messages": [
            {"role": "system", "parts": [{"type": "text", "content": story.prompt}]},
            {"role": "user", "parts": [{"type": "text", "content": story.asked}]},
        ],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "Here."}]}],
        "svc.call_site.id": "writer",
    }
    tool: dict[str, Any] = {
        "attributes": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"},
    }
    if story.failing:
        tool = {"attributes": tool["attributes"] | {"error.type": "Timeout"}, "status_code": 2}
    agent = {"gen_ai.operation.name": "invoke_agent", "svc.call_site.id": "desk"} | who
    common: Any = {"trace_id": story.trace_id}
    return [
        one(1, start=story.at, took_s=story.took_s, name="invoke_agent", attributes=agent, **common),
        one(2, start=story.at + second, parent=1, name="chat", attributes=chat, **common),
        one(3, start=story.at + second, parent=1, name="execute_tool search", **tool, **common),
    ]


async def fill(store: Database, plant: Plant, *, before: int = 360, after: int = 240) -> list[Story]:
    """Write, settle and tally so many traces of each side."""
    dice = random.Random(5)
    stories = []
    for number in range(before + after):
        late = number >= before
        share = dice.random()
        span = (NOW - ONSET) if late else timedelta(days=14)
        at = (ONSET if late else ONSET - timedelta(days=14)) + share * span
        story = Story(
            number,
            at,
            late,
            dice,
            tenant=dice.choice(("acme", "beta", "beta", "corp", "dune")),
            user=f"u{dice.randrange(30)}",
        )
        plant(story)
        stories.append(story)
    writer = store_of(store)
    for release in sorted({story.release for story in stories}):
        mine = [story for story in stories if story.release == release]
        resource = {"service.name": "shop", "service.version": release, "deployment.environment": "live"}
        for n in range(0, len(mine), 100):
            spans = [span for story in mine[n : n + 100] for span in _spans(story)]
            await writer.write(rows(*spans, resource=resource))
    traces, queue = PostgresTraceStore(store), PostgresTallyQueue(store)
    for _ in range(3):
        await traces.settle(NOW + timedelta(minutes=5), 10_000)
    while await queue.waiting():
        await queue.tally(PROJECT)
    return stories


async def case_of(store: Database, stories: list[Story], measure: str, subject: str, **fields: Any) -> UUID:
    """The case of a finding as a detector makes it, its witnesses what fails (or all) since the onset."""
    late = [story for story in stories if story.after]
    cited = [story for story in late if story.failing] or late
    said = fields.pop("reference_said", [moment.isoformat() for moment in REFERENCE])
    detection = Detection(
        Cause(fields.pop("detector", "tool_error"), "rate", f"{measure}:{subject}:up"),
        title="search fails more often: 2 % → 20 % of traces",
        basis="measured",
        severity=0.5,
        subject_kind="tool",
        subject_id="search",
        subject_label="search",
        detected_at=NOW,
        onset_at=ONSET,
        onset_low_at=ONSET - timedelta(hours=1),
        onset_high_at=ONSET + timedelta(hours=1),
        trace_count=len(cited),
        reference=subject,
        payload={
            "measure": measure,
            "subject": subject,
            "reference": said,
        },
        **fields,
    )
    refs = [Ref("witness", trace_id=story.trace_id) for story in cited[:80]]
    return (await opened(store, detection, refs)).id
