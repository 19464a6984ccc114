"""The form of an answer by kind of run, as JSON Schema: every key is required, no other is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from protocol.agents import RunKind

VERDICTS: Final = ("behavior_change", "traffic_shift", "definition_change", "model_change", "inconclusive")
ASSESSMENTS: Final = ("ruled_out", "contributing", "explains", "unknown")
CITED_AS: Final = ("trace", "span", "query", "script")
SUMMARY_CHARS: Final[Mapping[RunKind, int]] = {"triage": 320, "rca": 600}
REPORT_CHARS: Final = 20_000
HYPOTHESES: Final = 4


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _text(most: int, description: str = "") -> dict[str, Any]:
    return {"type": "string", "maxLength": most, **({"description": description} if description else {})}


def _citations(least: int, most: int) -> dict[str, Any]:
    citation = _object(
        kind={"enum": list(CITED_AS)},
        id=_text(64, "a trace id (32 hex), a span id (16 hex), or a ref such as q3 or s1"),
        note=_text(160),
    )
    return {"type": "array", "items": citation, "minItems": least, "maxItems": most}


SCHEMAS: Final[Mapping[RunKind, Mapping[str, Any]]] = {
    "triage": _object(
        verdict={"enum": ["positive", "negative", "unclear"]},
        summary=_text(SUMMARY_CHARS["triage"]),
        citations=_citations(1, 20),
    ),
    "rca": _object(
        summary=_text(SUMMARY_CHARS["rca"]),
        verdict={"enum": list(VERDICTS)},
        checklist={
            "type": "array",
            "maxItems": 60,
            "items": _object(
                check=_text(200),
                assessment={"enum": list(ASSESSMENTS)},
                detail=_text(600),
                citations=_citations(0, 10),
            ),
        },
        hypotheses={
            "type": "array",
            "maxItems": HYPOTHESES,
            "items": _object(
                title=_text(120),
                confidence={"enum": ["high", "medium", "low"]},
                rationale=_text(2_000),
                evidence_trace_ids={"type": "array", "items": _text(32), "maxItems": 20},
                citations=_citations(0, 20),
            ),
        },
        detailed_report=_text(REPORT_CHARS, "Markdown without links and images"),
    ),
}
