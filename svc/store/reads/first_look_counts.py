"""Rows that the first look read, counted: calls of tools and models, repeats, marks, notable traces. Pure.

Called by `svc.store.reads.first_look`, which owns the statements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any, Final

from svc.domain.detect.detectors.base import TOOL, tool
from svc.domain.first_look.facts import CallCount, Example, MarkCount, ModelCount, NotableTrace, RetryCount
from svc.domain.first_look.text import EXAMPLES
from svc.domain.marks.table import MarkName, detail_of
from svc.store.postgres.rows import latency_ms, printed

#: Stands for the models of a project among the subjects that have a baseline.
MODELS: Final = "models"
#: Dearest and slowest traces.
NOTABLE: Final = 3


def calls_of(
    rows: Sequence[Any], baselines: Set[str], cases: Mapping[str, str], *, of_models: bool = False
) -> list[CallCount]:
    """Each tool, or each model, by when it appeared, a unit for each trace that calls it.

    Models have a baseline where any call site of theirs has.
    """
    by_name: dict[str, dict[bytes, list[Any]]] = {}
    for row in rows:
        name = row["name"] if of_models else tool(row["name"]).removeprefix(TOOL)
        by_name.setdefault(name, {}).setdefault(row["trace_id"], []).append(row)
    counts = []
    for name, by_trace in by_name.items():
        failures = [
            next(row for row in calls if row["failed"])
            for calls in by_trace.values()
            if any(row["failed"] for row in calls)
        ]
        errors = Counter(row["error"] for row in failures if row["error"])
        error, error_traces = errors.most_common(1)[0] if errors else (None, 0)
        counts.append(
            CallCount(
                name,
                len(by_trace),
                len(failures),
                error,
                error_traces,
                [example_of(row) for row in failures[:EXAMPLES]],
                MODELS in baselines if of_models else TOOL + name in baselines,
                None if of_models else cases.get(name),
                of_models,
            )
        )
    return counts


def retries_of(rows: Sequence[Any]) -> list[RetryCount]:
    """Repeated calls by tool."""
    by_tool: dict[str, list[Any]] = {}
    for row in rows:
        by_tool.setdefault(tool(row["name"]).removeprefix(TOOL), []).append(row)
    counts = []
    for name, repeats in by_tool.items():
        first_of_trace = {row["trace_id"]: row for row in reversed(repeats)}
        worked = sum(row["status"] != "error" for row in repeats)
        examples = [example_of(row) for row in first_of_trace.values()]
        counts.append(RetryCount(name, len(repeats), worked, len(first_of_trace), examples[:EXAMPLES]))
    return counts


def marks_of(rows: Sequence[Any], starts: Mapping[bytes, datetime]) -> list[MarkCount]:
    """Marks by kind and tool; `starts` are those of the traces."""
    by_tool: dict[tuple[MarkName, str], list[Any]] = {}
    for row in rows:
        name = "" if row["name"] is None else tool(row["name"]).removeprefix(TOOL)
        by_tool.setdefault((row["mark"], name), []).append(row)
    counts = []
    for (mark, name), marks in by_tool.items():
        details = Counter(detail_of(mark, row["summary"]) for row in marks)
        detail, detail_count = details.most_common(1)[0]
        first_of_trace = {row["trace_id"]: row["span_id"] for row in reversed(marks)}
        examples = [
            Example(trace_id.hex(), span_id.hex(), starts[trace_id])
            for trace_id, span_id in list(first_of_trace.items())[:EXAMPLES]
        ]
        counts.append(MarkCount(mark, name, len(marks), len(first_of_trace), detail, detail_count, examples))
    return counts


def model_of(row: Any) -> ModelCount:
    """The calls of a model."""
    shown = zip(row["ids"] or (), row["spans"] or (), row["starts"] or (), strict=True)
    return ModelCount(
        row["name"],
        row["calls"],
        row["unpriced"],
        row["tokens"],
        row["traces"],
        row["with_usage"],
        row["with_content"],
        [Example(trace_id.hex(), span_id.hex(), started_at) for trace_id, span_id, started_at in shown],
    )


def example_of(row: Any) -> Example:
    """A trace to open."""
    span_id = row.get("span_id")
    return Example(row["trace_id"].hex(), None if span_id is None else span_id.hex(), row["started_at"])


def largest(rows: Sequence[Any], values: Sequence[float | None]) -> list[Any]:
    """The few rows of the largest values; nothing is no value."""
    ranked = sorted(
        ((value, row) for value, row in zip(values, rows, strict=True) if value), key=lambda pair: -pair[0]
    )
    return [row for _, row in ranked[:NOTABLE]]


def notable(row: Any, with_payloads: Set[bytes]) -> NotableTrace:
    """One of the largest traces; without a payload it has no preview."""
    return NotableTrace(
        row["trace_id"].hex(),
        row["name"],
        row["started_at"],
        printed(row, "input_preview") if row["trace_id"] in with_payloads else None,
        latency_ms(row["started_at"], row["ended_at"]),
        row["total_tokens"],
        row["total_cost"],
    )
