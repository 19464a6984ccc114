"""Figures of what was said of labelled traces: recall with precision, at a place and in its category.

Owns `Statement`, `Label`, `AppTraces` and the pure arithmetic of `tests.bench.judge`. A place is a span; a
statement is right at its place when anybody labelled that span, and in its category when the label has the
one that its rule stands for. Which category that is, and which rule goes first, is learned from the other
applications alone.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs

#: Samples of a bootstrap, and statements of one trace in the figures with a limit.
SAMPLES: Final = 1_000
LIMIT: Final = 5
#: The rule of the baseline that needs no thought.
BASELINE: Final = "every model call"


@attrs.frozen
class Label:
    """What a person saw: at which span, of which category."""

    trace_id: str
    span_id: str
    category: str


@attrs.frozen
class Statement:
    """What was said of a span, and by which rule."""

    trace_id: str
    span_id: str
    rule: str


@attrs.frozen
class AppTraces:
    """One application: its traces, its model calls as trace and span, and its labels."""

    name: str
    traces: tuple[str, ...]
    model_calls: tuple[tuple[str, str], ...]
    labels: tuple[Label, ...]


@attrs.frozen
class Score:
    """A figure with its 95 % interval by bootstrap over traces; None where nothing was said or labelled."""

    value: float | None
    low: float | None = None
    high: float | None = None


@attrs.frozen
class Row:
    """The figures of one way to judge an application."""

    name: str
    said_per_trace: float
    place_recall: Score
    place_precision: Score
    joint_recall: Score
    joint_precision: Score
    joint_f1: Score


@attrs.frozen
class Learned:
    """What other applications teach of each rule: its category, and how often it is right at its place."""

    categories: Mapping[str, str]
    precisions: Mapping[str, float]
    #: The two most frequent categories.
    usual: tuple[str, ...]


def learned(others: Iterable[tuple[AppTraces, Sequence[Statement]]]) -> Learned:
    """What applications teach that are not the one to be judged."""
    hits: defaultdict[str, Counter[str]] = defaultdict(Counter)
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    usual: Counter[str] = Counter()
    for app, statements in others:
        by_place: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for label in app.labels:
            by_place[label.trace_id, label.span_id].add(label.category)
            usual[label.category] += 1
        for statement in set(statements):
            categories = by_place.get((statement.trace_id, statement.span_id), set())
            hits[statement.rule].update(categories)
            total[statement.rule] += 1
            right[statement.rule] += bool(categories)
    return Learned(
        {
            rule: min(counts, key=lambda name: (-counts[name], name))
            for rule, counts in hits.items()
            if counts
        },
        {rule: right[rule] / count for rule, count in total.items()},
        tuple(sorted(usual, key=lambda name: (-usual[name], name))[:2]),
    )


def judged(app: AppTraces, name: str, statements: Collection[Statement], lesson: Learned) -> Row:
    """The figures of these statements."""
    said = {
        (one.trace_id, one.span_id, category)
        for one in statements
        for category in (lesson.categories.get(one.rule, ""),)
    }
    return _row(app, name, said)


def limited(statements: Collection[Statement], lesson: Learned) -> list[Statement]:
    """At most `LIMIT` statements of a trace, those first whose rules are most often right elsewhere."""
    kept: Counter[str] = Counter()
    chosen: list[Statement] = []
    for one in sorted(
        set(statements), key=lambda s: (-lesson.precisions.get(s.rule, 0.0), s.rule, s.span_id)
    ):
        if kept[one.trace_id] < LIMIT:
            kept[one.trace_id] += 1
            chosen.append(one)
    return chosen


def baseline(app: AppTraces, lesson: Learned) -> Row:
    """Every model call, in the two categories that are most frequent elsewhere."""
    said = {(*call, category) for call in app.model_calls for category in lesson.usual}
    return _row(app, f"{BASELINE} × {len(lesson.usual)} categories", said)


def _row(app: AppTraces, name: str, said: Collection[tuple[str, str, str]]) -> Row:
    labels = {(label.trace_id, label.span_id, label.category) for label in app.labels}
    places, labelled = {one[:2] for one in said}, {one[:2] for one in labels}
    # Right, said and labelled of each trace, at places and in categories.
    counts = {
        trace: (
            _of(trace, places & labelled), _of(trace, places), _of(trace, labelled),
            _of(trace, set(said) & labels), _of(trace, said), _of(trace, labels),
        )
        for trace in app.traces
    }  # fmt: skip
    rows = list(counts.values())
    dice = random.Random(1)
    samples = [dice.choices(rows, k=len(rows)) for _ in range(SAMPLES)] if rows else []

    def score(figure: int) -> Score:
        spread = sorted(value for one in samples if (value := _figures(one)[figure]) is not None)
        value = _figures(rows)[figure]
        if value is None or not spread:
            return Score(value)
        return Score(value, spread[int(0.025 * len(spread))], spread[int(0.975 * (len(spread) - 1))])

    return Row(name, len(said) / max(len(rows), 1), *(score(figure) for figure in range(5)))


def _of(trace: str, items: Iterable[Sequence[str]]) -> int:
    return sum(item[0] == trace for item in items)


def _figures(rows: Sequence[tuple[int, ...]]) -> tuple[float | None, ...]:
    right, said, labelled, joint, joint_said, joint_labelled = (sum(row[n] for row in rows) for n in range(6))
    recall, precision = _share(joint, joint_labelled), _share(joint, joint_said)
    f1 = _share(2 * joint, joint_said + joint_labelled)
    return _share(right, labelled), _share(right, said), recall, precision, f1


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def table(rows: Iterable[tuple[str, Row]]) -> str:
    """The figures as they are printed, by application."""
    lines = [
        "| Application | Judged by | Said a trace | Place: recall | precision | Category and place: recall"
        " | precision | F1 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for app, row in rows:
        scores = (
            row.place_recall, row.place_precision, row.joint_recall, row.joint_precision, row.joint_f1
        )  # fmt: skip
        figures = " | ".join(_written(score) for score in scores)
        lines.append(f"| {app} | {row.name} | {row.said_per_trace:.1f} | {figures} |")
    return "\n".join(lines)


def _written(score: Score) -> str:
    if score.value is None:
        return "–"
    return f"{score.value:.2f}" + ("" if score.low is None else f" ({score.low:.2f}–{score.high:.2f})")
