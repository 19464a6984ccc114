"""What detection says, for people: severities, verdicts, checks, steps of a trail, values. Pure texts.

Every page that shows a case, a finding or a report takes its words from here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from svc.domain.quantities import writer
from svc.domain.rca.cohort import label_of
from svc.web.shell import words

#: Mark, tone and word of each severity.
SEVERITIES: Final[Mapping[str, tuple[str, str, str]]] = {
    "high": ("▲", "bad", "high"),
    "medium": ("◆", "warn", "medium"),
    "low": ("●", "soft", "low"),
    "info": ("○", "soft", "info"),
}
VERDICTS: Final[Mapping[str, str]] = {
    "model_change": "Model changed",
    "definition_change": "Prompt, tools or schema changed",
    "release_change": "Release changed",
    "joint_change": "Several things changed at once",
    "traffic_shift": "Traffic shifted",
    # Of a secret no cause is looked for.
    "sighting": "Revoke it",
    "behavior_change": "Behaviour changed",
    "inconclusive": "No cause found",
}
_STEPS: Final[Mapping[str, str]] = {
    "opened": "opened {by}",
    "reopened": "reopened {by}",
    "joined": "{summary} joined",
    "escalated": "rose: {summary}",
    "muted": "muted {by} {summary}",
    "unmuted": "unmuted {by} {summary}",
    "resolved": "resolved {by}: {summary}",
    "absorbed": "taken as the new normal {by}: {summary}",
    "recovered": "recovered",
    "rejected": "rejected {by}",
    "ruled": "reviewed {by}",
    "rca_started": "analysis started {by}",
    "rca_done": "analysis done",
    "rca_failed": "analysis failed: {summary}",
}
#: What stands behind a secret's form and length in its name.
_FINGERPRINT: Final = re.compile(r":\d{1,5}:[0-9a-f]{32,64}(?![0-9a-f])")
_PARTS: Final[Mapping[str, str]] = {
    "sample": "Number of traces",
    "marks": "New model, release, prompt",
    "calls": "Model calls per trace",
    "tokens_per_call": "Tokens per call",
    "repeats": "Repeated calls to one tool",
    "cached_share": "Share of cached tokens",
}
_ONE_MESSAGE: Final = " with the same message"
_DIGEST: Final = re.compile(r"[0-9a-f]{8,64}")
#: How the assessment of a check is shown: mark, tone, word, and its place in a list. Not in red or green:
#: these are for what failed and for what is well.
ASSESSMENTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "explains": ("●", "", "cause"),
    "contributing": ("◐", "", "contributes"),
    "ruled_out": ("○", "soft", "not the cause"),
    "unknown": ("◌", "soft", "unknown"),
}
#: Words for what is no suspect: how many traces there were, and how they failed.
_NO_SUSPECTS: Final[Mapping[tuple[str, str], str]] = {
    ("sample", "ruled_out"): "enough",
    ("sample", "unknown"): "too few",
    ("signatures", "explains"): "what happened",
    ("signatures", "contributing"): "part of what happened",
}


#: What stands behind a number of a report that nothing which it cites shows.
UNVERIFIED: Final = "unverified"

#: What is new, as a mark tells it.
MARKS: Final[Mapping[str, str]] = {
    "seen_release": "new release",
    "seen_prompt": "new prompt",
    "seen_tools": "new tool definitions",
    "seen_schema": "new output schema",
    "answered_model": "new answering model",
}


def new_kinds(case: Mapping[str, Any]) -> Sequence[str]:
    """The failures of new kinds that came with a case which is led by another finding, by their titles."""
    return [
        finding["title"]
        for finding in case["findings"]
        if finding["detector"] == "new_signature"
        and finding["id"] != case["finding_id"]
        and finding["status"] != "rejected"
    ]


@attrs.frozen
class Title:
    """A title in its two halves: what happened, and from what to what."""

    head: str
    tail: str

    @classmethod
    def of(cls, text: str) -> Title:
        """`search` fails more often: 1.7 % → 30 % of traces."""
        head, _, tail = text.partition(": ")
        return cls(head, tail)


@attrs.frozen
class Check:
    """One thing that was looked into."""

    label: str
    assessment: str
    measurement: str
    group: str = ""

    @property
    def mark(self) -> tuple[str, str, str]:
        """Its mark, tone and word."""
        mark, tone, word = ASSESSMENTS.get(self.assessment, ASSESSMENTS["unknown"])
        return mark, tone, _NO_SUSPECTS.get((self.group, self.assessment), word)


@attrs.frozen
class Hypothesis:
    """What may be the cause, and the traces that speak for it."""

    title: str
    confidence: str
    rationale: str
    trace_ids: Sequence[str]


@attrs.frozen
class ToldReport:
    """A report as pages show it, whichever engine made it: what it does not hold is empty."""

    verdict: str
    summary: str
    #: Of a secret that was seen: nothing is to be confirmed, something to be done.
    sighting: bool
    hypotheses: Sequence[Hypothesis]
    settle: Sequence[str]
    checks: Sequence[Check]
    cohorts: Sequence[tuple[str, Mapping[str, Any]]]
    #: Of an agent: what it wrote at length, what to know of how it came about, numbers that nothing shows.
    text: str = ""
    notes: Sequence[str] = ()
    unsupported: Sequence[str] = ()

    @classmethod
    def of(cls, stored: Any) -> ToldReport | None:
        """From what is stored; None of nothing."""
        if not isinstance(stored, dict):
            return None
        report = marked(legible(stored), stored.get("unsupported"))
        sides = report.get("populations")
        sighting = report.get("sighting") is True
        return cls(
            verdict("sighting" if sighting else report.get("change") or report.get("verdict")),
            _text(report, "summary"),
            sighting,
            [
                Hypothesis(
                    _text(hypothesis, "title"),
                    _text(hypothesis, "confidence"),
                    _text(hypothesis, "rationale"),
                    [str(id_) for id_ in hypothesis.get("evidence_trace_ids") or ()],
                )
                for hypothesis in report.get("hypotheses") or ()
                if isinstance(hypothesis, dict)
            ],
            [str(text) for text in report.get("settle") or ()],
            checks_of(report),
            [
                (name, side)
                for name, side in (sorted(sides.items(), reverse=True) if isinstance(sides, dict) else ())
                if isinstance(side, dict) and {"from", "to", "traces", "of", "failures"} <= side.keys()
            ],
            _text(report, "detailed_report"),
            [str(note) for note in report.get("notes") or ()],
            [str(entry) for entry in stored.get("unsupported") or ()],
        )


def checks_of(report: Mapping[str, Any] | None) -> list[Check]:
    """What a report looked into: what explains first, what is not known last."""
    order = list(ASSESSMENTS)
    checks = [
        Check(
            _label(str(check.get("check", ""))),
            str(check.get("assessment", "")),
            str(check.get("measurement", check.get("detail", ""))),
            str(check.get("check", "")).partition(".")[0],
        )
        # The rule's checks, or the checklist by which an agent answered them.
        for check in (report or {}).get("ruled_out") or (report or {}).get("checklist") or ()
        if isinstance(check, dict)
    ]
    return _numbered(
        sorted(checks, key=lambda one: order.index(one.assessment) if one.assessment in order else 9)
    )


def _numbered(found: Sequence[Check]) -> list[Check]:
    """Several messages of one kind of failure with their numbers."""
    many, ordinals = Counter(check.label for check in found), Counter[str]()
    checks = []
    for check in found:
        ordinals[check.label] += 1
        if many[check.label] > 1 and check.label.endswith(_ONE_MESSAGE):
            check = attrs.evolve(
                check, label=f"{check.label}, {ordinals[check.label]} of {many[check.label]}"
            )
        checks.append(check)
    return checks


def _text(row: Mapping[str, Any], name: str) -> str:
    return str(row.get(name) or "")


def _label(check: str) -> str:
    group, _, suffix = check.partition(".")
    if group in ("who", "definition", "model", "release"):
        label = label_of(suffix)
        return label[:1].upper() + label[1:]
    if group == "signatures":
        # A kind of failure, and perhaps a hash of what it said, which says nothing to people.
        kind, _, digest = suffix.rpartition(":")
        if not _DIGEST.fullmatch(digest):
            return f"Failures `{suffix}`"
        return ("Failures without a type" if kind == "error" else f"Failures `{kind}`") + _ONE_MESSAGE
    if suffix.startswith("time."):
        return f"Time in `{suffix.removeprefix('time.')}`"
    name = suffix or group
    return _PARTS.get(name, name.replace("_", " ").capitalize())


def legible(value: Any) -> Any:
    """A report without the fingerprints that tell one secret from another: they say nothing to people."""
    if isinstance(value, str):
        return _FINGERPRINT.sub("", value)
    if isinstance(value, list):
        return [legible(entry) for entry in value]
    if isinstance(value, dict):
        return {name: legible(entry) for name, entry in value.items()}
    return value


def marked(report: Any, unsupported: Any) -> Any:
    """A report with a word behind each number that stands in nothing it cites."""
    numbers = [str(entry) for entry in unsupported] if isinstance(unsupported, list) else []
    if not numbers:
        return report
    pattern = re.compile(r"(?<![\w.,])(?:" + "|".join(map(re.escape, numbers)) + r")(?![\w]|[.,]\d)")
    return _marked(report, pattern)


def _marked(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(lambda number: f"{number[0]} ({UNVERIFIED})", value)
    if isinstance(value, list):
        return [_marked(entry, pattern) for entry in value]
    if isinstance(value, dict):
        return {name: _marked(entry, pattern) for name, entry in value.items()}
    return value


def detail(text: str) -> str:
    """The detail of a bucket: several values stand in it as a JSON array."""
    try:
        parts = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if not isinstance(parts, list):
        return text
    return ", ".join(str(part) for part in parts if part is not None)


def verdict(value: str | None) -> str:
    """A verdict in words."""
    return "" if value is None else VERDICTS.get(value, value.replace("_", " "))


def step(event: Mapping[str, Any]) -> str:
    """A step of a trail in words."""
    text = _STEPS.get(event["kind"], "{kind} {summary}")
    by = "automatically" if event["actor"] == "rule" else f"by {event['actor']}"
    sentence = text.format(kind=event["kind"], by=by, summary=event["summary"])
    return sentence.strip().removesuffix(":")


def number(n: int) -> str:
    """Small numbers as words."""
    small = "No One Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve".split()  # noqa: SIM905 # reads
    return small[n] if n < len(small) else words.count(n)


def figures(case: Mapping[str, Any], evidence: Mapping[str, Any], traces: int) -> list[tuple[str, str]]:
    """The figures of a case or finding as names and texts."""
    entries: list[tuple[str, str]] = []
    current, usual = evidence.get("current"), evidence.get("reference_value")
    if isinstance(current, dict) and "failures" in current:
        entries.append(("checked since onset", words.count(current.get("units"))))
        entries.append(("failed", words.count(current["failures"])))
        entries.append(("now", _with_interval(current)))
        if isinstance(usual, dict):
            entries.append(("usual", _with_interval(usual)))
        return entries
    if isinstance(current, dict) and "p50" in current:
        say = words.money if evidence.get("unit") == "usd" else words.duration
        baseline = usual if isinstance(usual, dict) else {}
        entries.append(("checked since onset", words.count(current.get("rows"))))
        for name in ("p50", "p95"):
            entries.append((name, f"{say(baseline.get(name))} → {say(current.get(name))}"))
        return entries
    if case.get("current_value") is not None:
        entries.append(("counted", writer(case.get("metric"))(case["current_value"])))
    if traces:
        entries.append(("traces", words.count(traces)))
    return entries


def _with_interval(rate: Mapping[str, Any]) -> str:
    text = words.percent(rate.get("value"))
    interval: Sequence[float] = rate.get("interval") or ()
    if len(interval) == 2:
        text += f" ({words.percent(interval[0])} to {words.percent(interval[1])})"
    return text
