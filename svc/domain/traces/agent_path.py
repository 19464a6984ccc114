"""Whose call it is: the agent above a call of a model or a tool, and the step of it that made the call.

Owns: `agent_paths`. Whoever tallies a settled trace asks for the paths of its calls, once all spans are
known: a span alone does not know its ancestors. Most have theirs by then: `say_paths` names what a batch that
holds call and agent tells, before it is written, and writing a span again takes the database as long as
writing it (35 µs, December 2026). Linear in the number of spans, whatever the links between them: parents may
be missing, be the span itself, or go round in a circle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from svc.domain.spans.call_site import without_changing
from svc.domain.spans.span import Kind, SpanRow
from svc.domain.traces.rollup import Linked, preorder

#: The field of spans that holds a path.
AGENT_PATH: Final = "agent_path"
#: The field in which an agent's span says what the agent is called.
AGENT: Final = "agent"
#: Spans that have one.
CALLS: Final[frozenset[Kind]] = frozenset({"llm", "tool", "mcp"})
#: What stands between an agent and its calls, and is named in their path.
STEPS: Final[frozenset[Kind]] = frozenset({"step", "workflow", "plan"})
#: Either part of a path is cut here, so that no path is longer than a name.
PART_CHARS: Final = 80
#: What stands between a call site and a path where both are named; no path holds it.
BETWEEN: Final = " › "
_MARK: Final = BETWEEN.strip()
#: Models whose names are looked for in those of agents, the first ones of a trace.
MODELS: Final = 20


class PathSpan(Linked, Protocol):
    """What a path is made of; the rows that detectors read have it."""

    kind: Kind
    name: str
    provided_model_name: str | None


def agent_paths(rows: Sequence[PathSpan], agent_of: Callable[[PathSpan], str | None]) -> Mapping[bytes, str]:
    """The paths of the calls that have an agent above them, by span, from rows in any order.

    `agent_of` says what an agent's span itself calls the agent. A path is the name of the nearest agent, and
    behind a slash that of the nearest step below it, both without what a request changes.
    """
    if not any(row.kind == "agent" for row in rows):
        return {}
    names = _Names(rows, agent_of)
    order, parents = preorder(rows)
    paths: dict[bytes, str] = {}
    # Where each span's agent and step stand, -1 for none.
    agents, steps = [-1] * len(rows), [-1] * len(rows)
    for i in order:
        row, parent = rows[i], parents[i]
        if parent >= 0:
            agents[i], steps[i] = agents[parent], steps[parent]
        if row.kind == "agent":
            agents[i], steps[i] = i, -1
        elif row.kind in STEPS and agents[i] >= 0:
            steps[i] = i
        elif row.kind in CALLS and agents[i] >= 0:
            paths[row.span_id] = names.path(agents[i], steps[i])
    return paths


def say_paths(rows: Sequence[SpanRow]) -> None:
    """Add its path to the attributes of each call whose agent is among these spans of one trace."""
    paths = agent_paths(rows, _agent_said)
    if paths:
        for row in rows:
            # A group whose write failed comes again.
            if (path := paths.get(row.span_id)) is not None and AGENT_PATH not in row.attributes:
                row.attributes = (*row.attributes, AGENT_PATH, path)


def _agent_said(row: PathSpan) -> str | None:
    """What an agent's span that is not stored yet calls the agent."""
    assert isinstance(row, SpanRow)
    pairs = zip(row.attributes[::2], row.attributes[1::2], strict=True)
    return next((value for field, value in pairs if field == AGENT), None)


class _Names:
    """The names of the agents and steps of one trace."""

    def __init__(self, rows: Sequence[PathSpan], agent_of: Callable[[PathSpan], str | None]) -> None:
        self._rows = rows
        self._agent_of = agent_of
        self._models = _models(rows)
        self._paths: dict[tuple[int, int], str] = {}

    def path(self, agent: int, step: int) -> str:
        """The path of a call below this agent and this step of it."""
        if (path := self._paths.get((agent, step))) is None:
            path = self._agent(self._rows[agent])
            if step >= 0 and (name := self._plain(self._rows[step].name)):
                path = f"{path}/{name}"
            self._paths[agent, step] = path
        return path

    def _agent(self, row: PathSpan) -> str:
        for name in (self._agent_of(row), row.name):
            # A name that holds a model is another one tomorrow.
            if name and (self._models is None or not self._models.search(name)) and (plain := _plain(name)):
                return plain
        return self._plain(row.name) or row.kind

    def _plain(self, name: str) -> str:
        return _plain(name if self._models is None else self._models.sub("", name))


def _models(rows: Iterable[PathSpan]) -> re.Pattern[str] | None:
    """Finds the models of a trace in a name."""
    models = dict.fromkeys(row.provided_model_name for row in rows if row.provided_model_name)
    patterns = [re.escape(model) for model in sorted(list(models)[:MODELS], key=len, reverse=True)]
    return re.compile(rf"(?i)(?<![\w.-])(?:{'|'.join(patterns)})(?![\w.-])") if patterns else None


def _plain(name: str) -> str:
    plain = without_changing(name[: 4 * PART_CHARS]).replace(_MARK, ">")
    return plain if len(plain) <= PART_CHARS else f"{plain[: PART_CHARS - 1]}…"
