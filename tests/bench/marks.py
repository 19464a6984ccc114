"""`python -m tests.bench.marks`: the processor time that marks take a span.

    python -m tests.bench.marks [--spans 20000] [--rounds 5] [--hold]

Agents' traffic as `tests.bench.tallying` has it, with the schemas of its tools, is read as detectors read it;
then marks are looked for in each trace. Prints the µs a span, and the same for a trace of so many calls that
break, repeat and fail. With `--hold` it exits 1 where a span takes longer than `BAR_US`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from protocol.otlp.reading import WireSpan, read_clean, walk
from svc.domain.detect.detectors.settled_trace import TEXTUAL, SettledTrace, texts_of
from svc.domain.intake.mapping import map_span
from svc.domain.marks.rules import marks_of
from svc.domain.pricing.prices import PriceBook
from tests.bench.tallying import agents
from tests.wire import request, span

BAR_US: Final = 10.0
_PRICES: Final = PriceBook()
_BEGIN_NS: Final = 1_795_000_000_000_000_000
_SCHEMA: Final = {
    "type": "object",
    "required": ["query"],
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
    "additionalProperties": False,
}
_TOOLS: Final = json.dumps([{"name": f"tool_{n}", "parameters": _SCHEMA} for n in range(8)])


def settled(wires: Sequence[WireSpan]) -> SettledTrace:
    """The trace of these spans."""
    rows = [map_span(one, _PRICES) for one in wires]
    texts = {
        row.span_id: texts_of(one, row.kind)
        for one, row in zip(wires, rows, strict=True)
        if row.kind in TEXTUAL
    }
    return SettledTrace.of(rows, "desk", texts)


def usual(spans: int) -> list[SettledTrace]:
    """Traces of agents whose tools have schemas."""
    by_trace: defaultdict[bytes, list[WireSpan]] = defaultdict(list)
    for body in agents(spans, _BEGIN_NS):
        for one in walk(read_clean(body)):
            if "gen_ai.tool.definitions" in one.attributes:
                one.attributes["gen_ai.tool.definitions"] = _TOOLS
            by_trace[one.trace_id].append(one)
    return [settled(wires) for wires in by_trace.values()]


def hostile(spans: int) -> list[SettledTrace]:
    """One trace in which nothing has an id and everything goes wrong."""
    made: list[Any] = [span("agent", {"gen_ai.operation.name": "invoke_agent"}, span_id=b"\0" * 7 + b"\x01")]
    for number in range(1, spans // 2):
        said = [{"type": "tool_call", "name": "tool_1", "arguments": {"limit": "x" * (number % 50)}}]
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.tool.definitions": _TOOLS,
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": said}]),
        }
        tool = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "tool_1",
            "gen_ai.tool.call.arguments": json.dumps({"other": number}),
            "gen_ai.tool.call.result": '{"status_code": 4040, "text": "' + "4 " * 500 + '"}',
        }
        for place, attributes in enumerate((chat, tool)):
            start_ns = _BEGIN_NS + (2 * number + place) * 1_000_000
            span_id = (2 * number + place).to_bytes(8, "big")
            made.append(
                span("x", attributes, span_id=span_id, parent=b"\0" * 7 + b"\x01", start_ns=start_ns,
                     end_ns=start_ns + 500_000)
            )  # fmt: skip
    return [settled(list(walk(read_clean(request(*made).SerializeToString()))))]


def measured_us(traces: Sequence[SettledTrace], rounds: int) -> tuple[float, int]:
    """What a span takes, and how many marks there are."""
    spans = sum(len(trace.spans) for trace in traces)
    taken: list[float] = []
    marks = 0
    for _ in range(rounds):
        began_s = time.process_time()
        marks = sum(len(marks_of(trace)) for trace in traces)
        taken.append((time.process_time() - began_s) / spans * 1e6)
    return median(taken), marks


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What marks take a span.")
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hold", action="store_true", help="fail above the bar")
    arguments = parser.parse_args()
    print("\n### Marks: µs of processor time a span\n\n| spans | µs | marks |\n|---|---|---|")
    worst_us = 0.0
    for name, traffic in (("agents'", usual), ("hostile", hostile)):
        taken_us, marks = measured_us(traffic(arguments.spans), arguments.rounds)
        worst_us = max(worst_us, taken_us)
        print(f"| {name} | {taken_us:.2f} | {marks:,} |", flush=True)
    raise SystemExit(1 if arguments.hold and worst_us > BAR_US else 0)


if __name__ == "__main__":
    main()
