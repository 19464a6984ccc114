"""Laws of the scores of `make bench-agents`: what counts as found, and how it is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.agents import FAULTS, RunScore, cited_score, cited_table, scored, table
from tests.bench.judge_scores import Label

TENANT = FAULTS[0]
RUN: dict[str, Any] = {
    "state": "done",
    "spent": {"turns": 4, "input": 900, "output": 80, "cache_read": 20, "cache_write": 0, "usd": 0.25},
}


def report(verdict: str = "behavior_change", title: str = "northwind", rationale: str = "") -> dict[str, Any]:
    hypothesis = {"title": title, "rationale": rationale, "evidence_trace_ids": ["a", "b", "c", "d"]}
    return {"summary": "It fails.", "verdict": verdict, "hypotheses": [hypothesis], "unsupported": ["412"]}


@pytest.mark.parametrize(
    ("title", "rationale", "named"),
    [
        ("northwind", "QuotaExceededError since Monday", True),
        ("The quota of Northwind", "", True),
        ("northwind", "something", False),
        ("a quota", "of a tenant", False),
    ],
)
def test_a_cause_is_named_by_a_word_of_each_kind(title: str, rationale: str, *, named: bool) -> None:
    assert scored(TENANT, RUN, report(title=title, rationale=rationale), set(), 1.0).cause_named is named


def test_evidence_counts_by_what_is_the_findings_own() -> None:
    score = scored(TENANT, RUN, report(), {"a", "b", "c", "e"}, 1.5)
    assert (score.evidence, score.unsupported, score.verdict_right) == (0.75, 1, True)
    assert (score.turns, score.tokens, score.usd, score.seconds) == (4, 1_000, 0.25, 1.5)
    assert scored(TENANT, RUN, {**report("inconclusive"), "hypotheses": []}, {"a"}, 1.0).evidence is None


def test_a_run_without_a_report_found_nothing_and_counts_as_a_run() -> None:
    failed = scored(TENANT, {**RUN, "state": "failed"}, None, {"a"}, 9.0)
    assert (failed.verdict_right, failed.cause_named, failed.evidence) == (False, False, None)
    shown = table({"a fault": [failed, RunScore("done", True, True, 1.0, 0, 6, 3_000, 0.5, 11.0)]})
    assert shown.splitlines()[-1] == "| a fault | 1 of 2 | 1 | 1 | 100 % | 0 | 5 | 2,000 | 0.38 | 10 |"


def test_what_a_run_cites_of_a_labelled_set_is_held_against_the_labels() -> None:
    labels = [Label("t1", "s1", "wrong tool"), Label("t1", "s2", "made up"), Label("t2", "s3", "made up")]
    citations = [
        {"kind": kind, "id": id_}
        for kind, id_ in (("span", "s1"), ("span", "s9"), ("span", "s1"), ("trace", "t1"), ("query", "q1"))
    ]
    score = cited_score("a finding", "triage", RUN, "positive", citations, labels)
    assert (score.spans, score.labelled_spans, score.traces, score.labelled_traces) == (2, 1, 1, 1)
    shown = cited_table([score], 40, labels)
    assert "| a finding | triage | done | positive | 2 | 1 | 1 | 1 | 4 | 0.25 |" in shown
    assert shown.endswith("Of all 40 traces people labelled 2.")
    assert "No finding was made" in cited_table([], 40, labels)
