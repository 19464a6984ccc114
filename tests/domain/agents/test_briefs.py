"""Laws of a brief: what an agent is told, and what nobody's agent is."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from protocol.agents import DEFAULT_LIMITS, RUN_KINDS, RUN_TOOLS, RunKind
from svc.domain.agents.briefs import Brief, BriefFacts, brief_of
from svc.domain.agents.methods import measured_by, method_of
from svc.domain.detect.detectors.table import DETECTORS
from svc.front.mcp.tools import TOOLS

TRACE = "0af7651916cd43dd8448eb211c80319c"
OLDER = "1bf7651916cd43dd8448eb211c80319d"
NOW = datetime(2026, 11, 26, 9, 30, tzinfo=UTC)
FINDING: dict[str, Any] = {
    "id": "f",
    "title": "search fails",
    "detector": "tool_error",
    "evidence": {
        "direction": "up",
        "phi": 31.25,
        "bar": 9.5,
        "statistic": 44.125,
        "rule": {"slots": 17, "seen_at": 98765},
        "chance_days": 812.5,
    },
    "triageVerdict": "positive",
    "triageSummary": "somebody said so",
    "status": "confirmed",
}
REPORT: dict[str, Any] = {
    "verdict": "model_change",
    "summary": "the rule says so",
    "ruled_out": [
        {"check": "marks", "assessment": "contributing", "measurement": "release 41 first seen"},
        {"check": "release.release", "assessment": "explains", "measurement": "41 holds 94 %"},
        {"check": "parts.tokens_per_call", "assessment": "unknown", "measurement": "300 → 310"},
    ],
    "hypotheses": [
        {
            "title": "Another release",
            "confidence": "high",
            "rationale": "first seen 13:52",
            "evidence_trace_ids": [TRACE],
            "citations": [],
        }
    ],
    "settle": ["a failing trace beside a healthy one"],
    "populations": {"before": {"traces": 210}, "after": {"traces": 240}},
}
AROUND = BriefFacts(
    NOW,
    {"days": 7, "tools": [{"name": "search_orders", "calls": 1234}]},
    {"before": [{"trace_id": OLDER, "spans": []}], "since": [{"trace_id": TRACE, "spans": []}]},
)


def brief(kind: RunKind, **finding: Any) -> Brief:
    refs = [{"role": "witness", "grain": "trace", "trace_id": TRACE}]
    return brief_of(kind, {**FINDING, **finding}, refs, DEFAULT_LIMITS[kind], REPORT, AROUND)


@pytest.mark.parametrize("kind", RUN_KINDS)
def test_a_brief_tells_the_claim_and_never_who_decided_what(kind: RunKind) -> None:
    made = brief(kind)
    text = made.prompt + made.system_prompt
    for hidden in ("somebody said so", 'positive"', "the rule says so", 'model_change"'):
        assert hidden not in text
    assert "search fails" in text


@pytest.mark.parametrize("kind", RUN_KINDS)
def test_a_brief_says_when_it_is_what_the_application_does_and_shows_traces_of_either_side(
    kind: RunKind,
) -> None:
    made = brief(kind)
    assert "It is 2026-11-26T09:30:00Z now" in made.system_prompt
    assert json.loads(made.files["application.json"])["tools"][0]["name"] == "search_orders"
    assert json.loads(made.files["samples.json"])["before"][0]["trace_id"] == OLDER
    # What is shown may be cited.
    assert list(made.known_ids) == [TRACE, OLDER]
    assert all(f"# {name}\n" in made.prompt for name in made.files)


@pytest.mark.parametrize("kind", RUN_KINDS)
def test_what_only_the_engines_understand_is_left_out(kind: RunKind) -> None:
    evidence = json.loads(brief(kind).files["claim.json"])["evidence"]
    assert evidence == {"direction": "up", "chance_days": 812.5}


def test_a_cause_is_looked_for_with_what_the_rule_measured_and_supposes() -> None:
    made = brief("rca")
    dossier = json.loads(made.files["dossier.json"])
    assert made.checklist == ["marks", "release.release"]
    assert [check["measurement"] for check in dossier["checks"]] == ["release 41 first seen", "41 holds 94 %"]
    assert dossier["hypotheses"][0]["rationale"] == "first seen 13:52"
    assert dossier["would_settle"] == REPORT["settle"]
    assert "dossier.json" not in brief("triage").files
    assert list(brief("triage").checklist) == []


@pytest.mark.parametrize(
    ("detector", "checks"),
    [
        ("tool_error", ["marks", "release.release"]),
        ("duration_drift", ["marks", "release.release", "parts.tokens_per_call"]),
        ("secret_leak", ["marks", "release.release"]),
        ("one that is gone", ["marks", "release.release", "parts.tokens_per_call"]),
    ],
)
def test_only_checks_that_make_sense_for_the_detector_are_asked_for(detector: str, checks: list[str]) -> None:
    assert brief("rca", detector=detector).checklist == checks


@pytest.mark.parametrize("kind", RUN_KINDS)
def test_every_detector_has_a_method_that_says_when_to_stop_and_names_tools_that_a_run_has(
    kind: RunKind,
) -> None:
    names = {tool.name for tool in TOOLS}
    for detector in (*DETECTORS, "one that is gone"):
        text = method_of(kind, detector)
        assert re.search(r"^Stop ", text, re.MULTILINE), detector
        assert "example of a good" in text
        named = set(re.findall(r"\b[a-z]+_[a-z_]+\b", text)) & names
        assert named, detector
        assert named <= set(RUN_TOOLS), detector
        assert "\\n" not in text + measured_by(detector)


def test_the_budget_of_a_brief_is_four_fifths_of_the_runs() -> None:
    assert "41 turns" in brief("triage").system_prompt
    assert "32 turns, 640,000 tokens, 12 minutes" in brief("rca").system_prompt
