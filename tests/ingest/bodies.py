"""Bodies that every way of decoding must read alike: compiled, as plain Python, on another machine."""

from __future__ import annotations

from tests.domain.dialects.speaking import CONVERSATIONS, USAGES, WRAPPERS
from tests.wire import event, request, span

TEXT = "the parcel has left the warehouse and arrives on Friday " * 5
ASKED = [{"role": "system", "content": TEXT}, {"role": "user", "content": f"Weather in Paris? {TEXT}"}]
CALLED = [{"id": "call-1", "name": "weather", "arguments": '{"city": "Paris"}'}]
ANSWERED = [{"role": "assistant", "content": "Rain.", "tool_calls": CALLED}]


def every_dialect() -> bytes:
    """A request with two spans of each dialect, of which one failed."""
    spans = []
    for number, name in enumerate(sorted(CONVERSATIONS.keys() | USAGES.keys() | WRAPPERS.keys())):
        messages = CONVERSATIONS[name](ASKED, ANSWERED) if name in CONVERSATIONS else {}
        call, usage = USAGES.get(name, ({}, lambda *_: {}))
        attributes = {**call, **messages, **usage(100 + number, 20, 10, 0, 5)}
        failure = event("exception", {"exception.type": "Error", "exception.message": TEXT})
        spans += [
            span(attributes=attributes, span_id=(2 * number + 1).to_bytes(8, "big")),
            span(attributes=attributes, span_id=(2 * number + 2).to_bytes(8, "big"), events=[failure]),
        ]
    return request(*spans, resource={"service.name": "shop"}).SerializeToString()
