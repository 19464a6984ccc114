"""The agent graph of a trace as the page draws it: lines as SVG paths, shares, and the headline. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from svc.domain.traces.agent_graph import BOX_HEIGHT, BOX_WIDTH, START, AgentGraph, Box, CallLine
from svc.web.shell import words

#: The share of failed calls from which a line is red.
FAILING: Final = 0.05
#: What stands above and below the drawing, for lines that go over a box, and beside it, for the strokes of
#: boxes: four columns fit beside the navigation on a screen of 1,360 px.
MARGIN_Y: Final = 40
MARGIN_X: Final = 2


@attrs.frozen
class DrawnLine:
    """A line, its path, where its label stands, and its width by its part of all calls."""

    line: CallLine
    path: str
    label_x: int
    label_y: int
    width: float
    red: bool


@attrs.frozen
class GraphRow:
    """A row of the table: a box, who called it, and its share of the time."""

    box: Box
    callers: str
    share: float


@attrs.frozen
class GraphView:
    """What the template draws."""

    graph: AgentGraph
    lines: Sequence[DrawnLine]
    rows: Sequence[GraphRow]
    headline: str
    truncated: bool

    @property
    def view_box(self) -> str:
        """The part of the plane that holds the drawing."""
        return f"{-MARGIN_X} {-MARGIN_Y} {self.width} {self.height}"

    @property
    def width(self) -> int:
        """How wide the drawing is, with what stands around it."""
        return self.graph.width + 2 * MARGIN_X

    @property
    def height(self) -> int:
        """How high it is."""
        return self.graph.height + 2 * MARGIN_Y


def graph_view(graph: AgentGraph, *, truncated: bool) -> GraphView:
    """The view of a graph."""
    boxes = {box.key: box for box in graph.boxes}
    most = max((line.calls for line in graph.lines), default=1)
    lines = [_drawn(line, boxes[line.caller], boxes[line.callee], most) for line in graph.lines]
    rows = [
        GraphRow(box, _callers(graph, box), graph.share(box))
        for box in sorted(graph.boxes, key=lambda box: (-box.time, box.key))
        if box.key != START or box.time or box.model_calls
    ]
    return GraphView(graph, lines, rows, _headline(rows), truncated)


def _drawn(line: CallLine, caller: Box, callee: Box, most: int) -> DrawnLine:
    """From the right side of a caller to the left side of a later column, else over the top."""
    begin_x, begin_y = caller.x + BOX_WIDTH, caller.y + BOX_HEIGHT // 2
    end_x, end_y = callee.x, callee.y + BOX_HEIGHT // 2
    if callee.column > caller.column:
        middle = (begin_x + end_x) // 2
        path = f"M{begin_x} {begin_y} C{middle} {begin_y} {middle} {end_y} {end_x} {end_y}"
        label_x, label_y = middle, end_y - 6
    else:
        above = min(caller.y, callee.y) - 22
        begin_x, end_x = caller.x + BOX_WIDTH - 40, callee.x + 40
        path = f"M{begin_x} {caller.y} C{begin_x} {above} {end_x} {above} {end_x} {callee.y}"
        label_x, label_y = (begin_x + end_x) // 2, above + 2
    failed_share = line.failed / line.calls if line.calls else 0.0
    return DrawnLine(line, path, label_x, label_y, 1.2 + 4.8 * line.calls / most, failed_share >= FAILING)


def _callers(graph: AgentGraph, box: Box) -> str:
    names = [
        f"{'the start' if line.caller == START else words.visible(line.caller[1])[:60]}"
        + (f" {words.count(line.calls)}" if line.calls > 1 else "")
        + (" (handover)" if line.handoff else "")
        + (" (in parallel)" if line.parallel else "")
        for line in graph.lines
        if line.callee == box.key
    ]
    return ", ".join(names)


def _headline(rows: Sequence[GraphRow]) -> str:
    """Where the failures are, and where the time went, in a sentence."""
    steps = [row for row in rows if row.box.key != START]
    if not steps:
        return "No agent or tool was called"
    slowest = max(steps, key=lambda row: row.share)
    failing = max(steps, key=lambda row: row.box.failed)
    name = words.visible(slowest.box.name)[:60]
    sentence = f"{name} takes {words.percent(slowest.share)} of the time"
    failures = sum(row.box.failed for row in steps)
    if failures:
        failing_name = words.visible(failing.box.name)[:60]
        sentence = f"{failing_name} accounts for {words.count(failing.box.failed)} of" + (
            f" {words.counted(failures, 'failed call')}; {sentence}"
        )
    return sentence
