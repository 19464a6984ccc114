"""Laws of `make bench-judge`: its example is found by marks, and its figures are what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import judge_example
from tests.bench.judge import compared, replayed
from tests.bench.judge_scores import (
    LIMIT,
    AppTraces,
    Label,
    Statement,
    baseline,
    judged,
    learned,
    limited,
    table,
)


def app(name: str, labels: dict[tuple[str, str], str], traces: str = "tuv") -> AppTraces:
    calls = tuple((trace, span) for trace in traces for span in "ab")
    return AppTraces(name, tuple(traces), calls, tuple(Label(*at, what) for at, what in labels.items()))


OTHER = app("other", {("t", "a"): "retry", ("u", "a"): "retry", ("v", "a"): "schema"})
SAID_OF_OTHER = [Statement("t", "a", "again"), Statement("v", "a", "broken"), Statement("v", "b", "broken")]
ONE = app("one", {("t", "a"): "retry", ("u", "b"): "schema", ("v", "b"): "lost"})


def test_a_rule_stands_for_the_category_that_it_marks_elsewhere_and_never_for_one_of_its_own() -> None:
    lesson = learned([(OTHER, SAID_OF_OTHER)])
    assert lesson.categories == {"again": "retry", "broken": "schema"}
    assert lesson.precisions == {"again": 1.0, "broken": 0.5}
    assert lesson.usual == ("retry", "schema")
    # A rule that nobody saw elsewhere is right at a place and in no category.
    row = judged(ONE, "x", [Statement("v", "b", "unheard of")], lesson)
    assert (row.place_precision.value, row.joint_precision.value, row.joint_f1.value) == (1.0, 0.0, 0.0)


def test_precision_stands_beside_recall_at_the_place_and_in_the_category() -> None:
    lesson = learned([(OTHER, SAID_OF_OTHER)])
    said = [Statement("t", "a", "again"), Statement("u", "b", "again"), Statement("v", "a", "broken")]
    row = judged(ONE, "x", said, lesson)
    assert row.said_per_trace == 1.0
    assert (row.place_recall.value, row.place_precision.value) == (2 / 3, 2 / 3)
    assert (row.joint_recall.value, row.joint_precision.value, row.joint_f1.value) == (1 / 3, 1 / 3, 1 / 3)
    low, high = row.joint_f1.low, row.joint_f1.high
    assert low is not None
    assert high is not None
    assert low <= 1 / 3 <= high


def test_the_baseline_says_two_categories_of_every_model_call() -> None:
    row = baseline(ONE, learned([(OTHER, SAID_OF_OTHER)]))
    assert row.said_per_trace == 4.0
    assert (row.place_recall.value, row.place_precision.value) == (1.0, 0.5)
    assert (row.joint_recall.value, row.joint_precision.value) == (2 / 3, 2 / 12)


def test_of_many_statements_of_a_trace_those_of_the_surest_rules_are_kept() -> None:
    lesson = learned([(OTHER, SAID_OF_OTHER)])
    many = [Statement("t", f"s{n}", "broken") for n in range(9)] + [Statement("t", "a", "again")]
    kept = limited(many, lesson)
    assert len(kept) == LIMIT
    assert kept[0] == Statement("t", "a", "again")


def test_nothing_said_has_a_recall_and_no_precision() -> None:
    row = judged(ONE, "x", [], learned([]))
    assert (row.place_recall.value, row.place_precision.value) == (0.0, None)
    assert "| – |" in table([("one", row)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("labelled")
    judge_example.write(made)
    return made


def test_the_example_has_labels_of_each_mistake_at_spans_that_are_there(folder: Path) -> None:
    traces = 0
    for name in judge_example.APPS:
        requests = [json.loads(line) for line in (folder / name / "traces.jsonl").read_text().splitlines()]
        spans = {
            (span["traceId"], span["spanId"])
            for request in requests
            for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]
        }
        labels = json.loads((folder / name / "labels.json").read_text())
        assert {(label["trace_id"], label["span_id"]) for label in labels} <= spans
        assert {label["category"] for label in labels} == set(judge_example.MISTAKES) - {None}
        traces += len(requests)
    assert traces >= 60


@pytest.mark.release
def test_marks_find_the_mistakes_of_the_example_and_nothing_else(folder: Path) -> None:
    apps, said, _ = replayed(folder)
    rows = {(name, row.name): row for name, row in compared(apps, said)}
    for name in judge_example.APPS:
        simple, row = rows[name, "every model call × 2 categories"], rows[name, "all that is said"]
        # Nothing says that a question was answered before.
        found = [
            label
            for one in apps
            if one.name == name
            for label in one.labels
            if label.category != "context lost"
        ]
        total = next(len(one.labels) for one in apps if one.name == name)
        assert row.place_recall.value == pytest.approx(len(found) / total)
        assert row.joint_precision.value == 1.0
        assert simple.place_recall.value == 1.0
        assert simple.joint_precision.value is not None
        assert simple.joint_precision.value < 0.2
