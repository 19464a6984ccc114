"""What of an agent's answer counts: its form, what it stands on, and what may not stand in it."""

from __future__ import annotations

from typing import Any

import pytest

from svc.domain.agents.answers import (
    ShownEvidence,
    completed,
    faults,
    form_faults,
    grounded,
    tidied_text,
    unsupported,
)

OLD, NEW, FOREIGN = "aa" * 16, "bb" * 16, "cc" * 16
SHOWN = ShownEvidence({OLD, NEW}, {"q1": f"{NEW} failed 37 of 120", "s1": "exit code 1"}, {"s1"})


def cite(kind: str, id_: str) -> dict[str, str]:
    return {"kind": kind, "id": id_, "note": ""}


def report(**fields: Any) -> dict[str, Any]:
    hypothesis = {
        "title": "a release",
        "confidence": "low",
        "rationale": "37 of 120 failed",
        "evidence_trace_ids": [NEW],
        "citations": [cite("query", "q1")],
    }
    plain: dict[str, Any] = {
        "summary": "it fails",
        "verdict": "behavior_change",
        "checklist": [],
        "hypotheses": [hypothesis],
        "detailed_report": "",
    }
    return {**plain, **fields}


@pytest.mark.parametrize(
    "broken",
    [
        {"verdict": "guilty"},
        {"summary": "x" * 601},
        {"more": 1},
        {"hypotheses": [{}]},
        {"detailed_report": None},
        {"checklist": [{"check": "a", "assessment": "maybe", "detail": "", "citations": []}]},
    ],
)
def test_an_answer_of_another_form_is_refused_with_the_place(broken: dict[str, Any]) -> None:
    assert form_faults("rca", report()) == []
    told, *_ = form_faults("rca", report(**broken))
    assert told.partition(":")[0].split("/")[0] in {*broken, "the answer"}
    assert form_faults("rca", {}) != []
    assert form_faults("rca", "no object") != []


def test_only_what_was_shown_is_cited() -> None:
    assert faults("rca", report(), SHOWN, ()) == []
    wrong = report(
        hypotheses=[
            {
                **report()["hypotheses"][0],
                "evidence_trace_ids": [FOREIGN],
                "citations": [cite("trace", FOREIGN), cite("query", "q2"), cite("script", "s1")],
            }
        ]
    )
    told = " ".join(faults("rca", wrong, SHOWN, ()))
    assert FOREIGN in told
    assert "no ref 'q2'" in told
    assert "s1 failed" in told
    unknown = {"check": "mine", "assessment": "explains", "detail": "", "citations": []}
    assert "no 'mine'" in faults("rca", report(checklist=[unknown]), SHOWN, ("marks",))[0]


def test_a_check_that_was_forgotten_is_unknown() -> None:
    (one,) = completed(report(), ("marks",))["checklist"]
    assert (one["check"], one["assessment"]) == ("marks", "unknown")


def test_a_number_that_stands_in_nothing_cited_is_marked() -> None:
    assert unsupported("rca", report(), SHOWN) == []
    said = report(summary="37 of 120 (0.37 of them, 37 %) since 2026-11-20 12:30, 9 users, 412 sessions")
    assert unsupported("rca", said, SHOWN) == ["412"]


def test_what_nobody_may_read_is_taken_out() -> None:
    links = "[x](http://e.example/?d=1) ![p](data:image/png;base64,AA) https://e.example/y"
    assert (
        tidied_text(f"a\x00b\u202ec {links} key-of-run", ["key-of-run"]) == "abc x p [link removed] [hidden]"
    )
    assert "AKIAZ7QX" not in tidied_text("AKIAZ7QX3MPLW2KD4RTV")


def test_a_report_keeps_what_can_be_looked_up() -> None:
    known = {"existing": {OLD, NEW}, "evidence": {NEW}, "before": {OLD}}
    compared = report(
        hypotheses=[{**report()["hypotheses"][0], "citations": [cite("trace", OLD), cite("trace", FOREIGN)]}]
    )
    kept = grounded(compared, **known)
    assert kept["verdict"] == "behavior_change"
    assert kept["hypotheses"][0]["citations"] == [cite("trace", OLD)]
    assert kept["hypotheses"][0]["evidence_trace_ids"] == [NEW]
    # A change is told by a comparison; a hypothesis falls with nothing to stand on.
    alone = grounded(report(), **known)
    assert alone["verdict"] == "inconclusive"
    assert "cites nothing of before" in alone["summary"]
    bare = {**report()["hypotheses"][0], "evidence_trace_ids": [FOREIGN], "citations": []}
    assert grounded(report(hypotheses=[bare], verdict="model_change"), **known)["hypotheses"] == []
    triage = {
        "verdict": "positive",
        "summary": "",
        "citations": [cite("trace", FOREIGN), cite("query", "q1")],
    }
    assert grounded(triage, **known)["citations"] == [cite("query", "q1")]
