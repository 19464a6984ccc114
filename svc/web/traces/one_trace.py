"""The trace that an address names, and what several of its pages and documents read of it.

Called by the pages of one trace. A trace that is not there is a refusal that each of them answers with.
"""

from __future__ import annotations

import re
from typing import Any, Final

import attrs
import trio

from protocol.refusals import NOT_FOUND, Refusal, Refused
from svc.store.reads.one_trace.skeleton import SkeletonReads, TraceHead
from svc.store.reads.one_trace.trace_numbers import TraceNumbers
from svc.store.reads.one_trace.trace_payloads import TracePayloads
from svc.web.messages.message_parts import Room, steps
from svc.web.shell import words
from svc.web.shell.aged_out import aged_out
from svc.web.shell.page import PROJECT, Visit
from svc.web.shell.render import packers, query

TRACE: Final = PROJECT + "/traces/{traceId}"
#: Spans of one page of a conversation.
STEPS: Final = 40

TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}", re.ASCII)
NO_TRACE: Final = NOT_FOUND.saying("there is no such trace in this project, or its term is over")


@attrs.frozen
class OpenedTrace:
    """The trace of an address."""

    trace_id: bytes
    head: TraceHead
    address: str
    #: What of the address every link within the page keeps: the list one came from.
    kept: dict[str, str]

    @property
    def fields(self) -> dict[str, Any]:
        """Its roll-up row."""
        return self.head.fields

    def link(self, view: str = "", span: str = "", **more: Any) -> str:
        """The address of this page in another state."""
        return query(self.address, view=view, span=span, **more, **self.kept)


async def opened(visit: Visit) -> OpenedTrace:
    """The trace that the path names. Raises `Refused` when there is none."""
    trace_hex = visit.call.path["traceId"]
    if not TRACE_ID.fullmatch(trace_hex):
        raise Refused(NO_TRACE)
    trace_id = bytes.fromhex(trace_hex)
    head = await SkeletonReads(visit.means.history).head(visit.project.id, trace_id)
    if head is None:
        raise Refused(NO_TRACE)
    parameters = {"in_": visit.query["in"]} if visit.query.get("in") else {}
    return OpenedTrace(trace_id, head, f"{visit.base}/traces/{trace_hex.lower()}", parameters)


def headline(fields: dict[str, Any], head: TraceHead) -> str:
    """What happened, in a sentence."""
    name = words.visible(fields["name"] or "a trace without a name")
    name = name if len(name) <= 80 else name[:79] + "…"
    failed, took = fields["error_count"], words.duration(fields["latency_ms"])
    if not head.settled:
        return f"{name} is still arriving"
    if fields["status"] == "error":
        return f"{name} failed after {took}"
    if failed:
        return f"{name} took {took}, {words.counted(failed, 'span')} failed on the way"
    return f"{name} took {took}" if fields["ended_at"] else f"{name} has not ended"


async def talk(visit: Visit, opened_trace: OpenedTrace) -> dict[str, Any]:
    """A page of the conversation, from the `step` of the address on."""
    first_step = visit.number("step")
    payloads = TracePayloads(visit.means.history)
    page = await payloads.conversation(
        visit.project.id, opened_trace.trace_id, opened_trace.head, first=first_step, count=STEPS
    )
    # Opening and cutting texts takes time with their length.
    talk_steps = await trio.to_thread.run_sync(steps, page.spans, page.before, Room(), limiter=packers)
    notice = await aged_out(visit, [step.span["payload_available"] for step in talk_steps])
    return {
        "steps": talk_steps,
        "first": first_step,
        "next": first_step + STEPS if page.more else None,
        "aged_out": notice,
    }


async def explained(visit: Visit, opened_trace: OpenedTrace, number: str) -> dict[str, Any] | Refusal:
    """What one number of the head was made of."""
    numbers = TraceNumbers(visit.means.history)
    trace_key = visit.project.id, opened_trace.trace_id, opened_trace.head
    context: dict[str, Any] = {
        "number": number,
        "found": opened_trace,
        "trace": opened_trace.fields,
        "head": opened_trace.head,
    }
    if number in ("tokens", "cost"):
        return {**context, "groups": await numbers.usage(*trace_key)}
    if number == "errors":
        return {**context, "failures": await numbers.failures(*trace_key)}
    if number in ("spans", "duration"):
        return {**context, "kinds": await numbers.kinds(*trace_key)}
    return NOT_FOUND.saying("no such number; duration, tokens, cost, errors and spans are explained")
