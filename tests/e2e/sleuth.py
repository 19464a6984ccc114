"""A stand-in model that finds things out by its tools: it knows nothing of what was planted.

It measures a claim by samples of like hours of before and since, and looks for what the failing calls of a
case have in common that the healthy ones lack. Its words are made of what the tools answered.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from tests.runner.standin_model import Asked, Reply, calls

#: Samples a side, of so many traces each, so far apart; and how many are asked for in a turn.
SAMPLES, ROWS, APART, A_TURN = 6, 18, timedelta(hours=10), 2
#: Failing traces above twice those of before, among those that were looked at.
CLEAR = 4
#: Traces that are compared, of those that fail and of those that do not, and calls in a turn.
FAILING, HEALTHY, CALLS = 5, 8, 7


def sleuth(asked: Asked) -> Reply:
    """Judge a finding, or look for the cause of a case."""
    return _cause(asked) if "# dossier.json" in asked.prompt else _judge(asked)


def _claim(prompt: str) -> dict[str, Any]:
    found = re.search(r"# claim\.json\n\n(\{.*?\n\})\n", prompt, re.DOTALL)
    assert found is not None, prompt[:300]
    claim: dict[str, Any] = json.loads(found[1])
    return claim


def _read(result: str) -> tuple[str, Any]:
    """A result's ref, and what it says."""
    ref, _, text = result.partition("] ")
    assert "… cut:" not in text, text[-100:]
    return ref.removeprefix("["), json.loads(text)


def _judge(asked: Asked) -> Reply:
    claim = _claim(asked.prompt)
    onset = datetime.fromisoformat(claim["onset_at"])
    starts = [
        begin + number * APART for begin in (onset - timedelta(days=7), onset) for number in range(SAMPLES)
    ]
    if len(asked.results) < len(starts):
        asks = []
        for at in starts[len(asked.results) :][:A_TURN]:
            between = {"from": at.isoformat(), "to": (at + APART).isoformat()}
            asks.append(("list_traces", {"range": between, "limit": ROWS, "q": "support"}))
        return calls(*asks)
    read = [_read(result) for result in asked.results]
    failing = [sum(bool(row["error_count"]) for row in said["traces"]) for _, said in read]
    before, since = sum(failing[:SAMPLES]), sum(failing[SAMPLES:])
    verdict = "positive" if since - 2 * before >= CLEAR else "negative"
    summary = f"In samples of the same hours {since} traces fail since the onset, {before} a week before."
    cited = [{"kind": "query", "id": ref, "note": "a sample"} for ref, _ in read]
    return calls(("submit_answer", {"verdict": verdict, "summary": summary, "citations": cited}))


def _cause(asked: Asked) -> Reply:
    claim = _claim(asked.prompt)
    if not asked.results:
        roles = [{"finding_id": claim["id"], "role": role, "limit": 40} for role in ("witness", "baseline")]
        return calls(*(("get_finding_evidence", role) for role in roles))
    sides = [[ref["trace_id"] for ref in _read(result)[1]["refs"]] for result in asked.results[:2]]
    failing, healthy = (
        list(dict.fromkeys(side))[:most] for side, most in zip(sides, (FAILING, HEALTHY), strict=True)
    )
    flat = [*failing, *healthy]
    done = len(asked.results) - 2
    if done < len(flat):
        some = flat[done:][:CALLS]
        return calls(
            *(("list_spans", {"trace_id": one, "kind": "tool", "fields": ["payload"]}) for one in some)
        )
    read = [_read(result) for result in asked.results[2:]]
    facts = [{fact for row in said["spans"] for fact in _facts(row)} for _, said in read]
    bad, good = Counter(chain(*facts[:FAILING])), Counter(chain(*facts[FAILING:]))
    apart = [fact for fact, count in bad.items() if count >= FAILING - 1 and good[fact] <= HEALTHY // 2]
    told = " and ".join(sorted(f"{name} {value}" for name, value in apart))
    cited = [{"kind": "trace", "id": one, "note": "compared"} for one in flat]
    cited += [{"kind": "query", "id": ref, "note": "its calls"} for ref, _ in read[:CALLS]]
    hypothesis = {
        "title": f"The calls that fail have {told}"[:120],
        "confidence": "medium",
        "rationale": f"What fails has in common {told}; what is healthy has not.",
        "evidence_trace_ids": failing,
        "citations": cited,
    }
    report = {
        "summary": f"Calls fail that have {told}.",
        "verdict": "behavior_change" if apart else "inconclusive",
        "checklist": [],
        "hypotheses": [hypothesis],
        "detailed_report": "Calls since the onset were held against calls of before.",
    }
    return calls(("submit_answer", report))


def _facts(row: dict[str, Any]) -> list[tuple[str, str]]:
    """What can be told apart of a call."""
    names = ("tenant.id", "error.type")
    return [(name, str(row["attributes"][name])) for name in names if name in row["attributes"]]
