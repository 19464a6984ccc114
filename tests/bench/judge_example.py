"""A labelled set of our own: two small applications with planted mistakes, drawn from a seed.

    python -m tests.bench.judge_example FOLDER

Writes for each application `traces.jsonl`, a request in OTLP JSON a line, and `labels.json`. The mistakes:
arguments that break the schema of a tool, a call repeated after it failed in the same way, a claim to have
looked something up without a tool, and a question whose answer the user has given before.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

TRACES: Final = 40
#: Of three traces one is without a mistake.
MISTAKES: Final = ("schema breach", "retry", "claim without a call", "context lost", None, None)
APPS: Final = {
    "orders": ("find_order", "number", "Where is order {n}?", "Order {n} is on its way."),
    "library": ("search_books", "title", "Do you have the book {n}?", "The book {n} is in the shelf."),
}
_BEGIN_S: Final = 1_795_000_000


def traces(app: str, seed: int = 1) -> Iterator[tuple[dict[str, Any], list[dict[str, str]]]]:
    """Each trace as a request, with its labels."""
    dice = random.Random(f"{app} {seed}")
    for number in range(TRACES):
        mistake = MISTAKES[number % len(MISTAKES)]
        yield _Trace(app, dice, number).made(mistake)


class _Trace:
    def __init__(self, app: str, dice: random.Random, number: int) -> None:
        self.app, self.number = app, number
        self.tool, self.key, self.question, self.answer = APPS[app]
        self.trace_id = dice.randbytes(16).hex()
        self.dice = dice
        self.at_s = float(_BEGIN_S + 60 * number)
        self.spans: list[dict[str, Any]] = []
        self.labels: list[dict[str, str]] = []

    def made(self, mistake: str | None) -> tuple[dict[str, Any], list[dict[str, str]]]:
        """The trace with this mistake."""
        given = {self.key: f"{self.number}"}
        root = self._span(
            "turn", None, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self.app}
        )
        if mistake == "claim without a call":
            self._says(root, "I have just verified it: " + self._text(self.answer), mistake)
        elif mistake == "context lost":
            self._asks(root, given)
            self._tool(root, given, f"{self.number}: ready")
            self._says(root, f"Which {self.key} do you mean?", mistake)
        else:
            first = {"colour": "blue"} if mistake == "schema breach" else given
            self._asks(root, first, mistake if mistake == "schema breach" else None)
            self._tool(root, first, None if mistake == "retry" else f"{self.number}: ready")
            if mistake == "retry":
                self._asks(root, given, mistake)
                self._tool(root, given, None)
            self._says(root, self._text(self.answer))
        self.spans[0]["endTimeUnixNano"] = self._ns()
        scope = [{"scope": {"name": "example"}, "spans": self.spans}]
        resource = {"attributes": _attributes({"service.name": self.app})}
        return {"resourceSpans": [{"resource": resource, "scopeSpans": scope}]}, self.labels

    def _text(self, form: str) -> str:
        return form.format(n=self.number)

    def _ns(self) -> str:
        return str(int(self.at_s * 1e9))

    def _span(self, name: str, parent: str | None, attributes: dict[str, Any], error: str = "") -> str:
        span_id = self.dice.randbytes(8).hex()
        began = self._ns()
        self.at_s += 0.2 + self.dice.random()
        self.spans.append(
            {
                "traceId": self.trace_id,
                "spanId": span_id,
                **({} if parent is None else {"parentSpanId": parent}),
                "name": name,
                "kind": 1,
                "startTimeUnixNano": began,
                "endTimeUnixNano": self._ns(),
                "attributes": _attributes(attributes),
                "status": {"code": 2, "message": error} if error else {},
            }
        )
        return span_id

    def _chat(self, root: str, part: dict[str, Any], label: str | None) -> None:
        schema = {
            "type": "object",
            "required": [self.key],
            "properties": {self.key: {"type": "string"}},
            "additionalProperties": False,
        }
        asked = [{"role": "user", "parts": [{"type": "text", "content": self._text(self.question)}]}]
        span_id = self._span(
            "chat gpt-4o",
            root,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.tool.definitions": json.dumps([{"name": self.tool, "parameters": schema}]),
                "gen_ai.input.messages": json.dumps(asked),
                "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [part]}]),
            },
        )
        if label is not None:
            self.labels.append({"trace_id": self.trace_id, "span_id": span_id, "category": label})

    def _says(self, root: str, text: str, label: str | None = None) -> None:
        self._chat(root, {"type": "text", "content": text}, label)

    def _asks(self, root: str, arguments: dict[str, str], label: str | None = None) -> None:
        call = {"type": "tool_call", "id": f"call-{len(self.spans)}", "name": self.tool}
        self._chat(root, {**call, "arguments": arguments}, label)

    def _tool(self, root: str, arguments: dict[str, str], result: str | None) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": self.tool,
            "gen_ai.tool.call.id": f"call-{len(self.spans) - 1}",
            "gen_ai.tool.call.arguments": json.dumps(arguments),
        }
        if result is None:
            error = "the store did not answer in time"
            self._span(f"execute_tool {self.tool}", root, {**attributes, "error.type": "Timeout"}, error)
        else:
            self._span(f"execute_tool {self.tool}", root, {**attributes, "gen_ai.tool.call.result": result})


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def write(folder: Path) -> None:
    """Write the set."""
    for app in APPS:
        into = folder / app
        into.mkdir(parents=True, exist_ok=True)
        made = list(traces(app))
        lines = [json.dumps(request) for request, _ in made]
        (into / "traces.jsonl").write_text("\n".join(lines) + "\n")
        labels = [label for _, of_trace in made for label in of_trace]
        (into / "labels.json").write_text(json.dumps(labels, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.judge_example")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)
