"""The report of a root-cause analysis by rule, as it is stored and shown.

Owns: `report_of` and its shape `{engine, sighting, verdict, change, summary,
ruled_out[{check, assessment, measurement}],
hypotheses[{title, confidence, rationale, evidence_trace_ids, citations}], settle[], populations,
detailed_report}`. The analyst stores it. A reader finds verdict, summary, hypotheses and detailed report in
an agent's report too; `check` is the id that an agent's checklist goes by. Cites traces of the finding's
evidence only, and says "because" only where a mark stands before the onset and half is explained. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from protocol.detection import EvidenceRole
from svc.domain.quantities import count, duration, money, p_value, percent
from svc.domain.rca import checks, figures, sightings
from svc.domain.rca.cohort import Claim, Cohort, Mark, Unit, label_of
from svc.domain.rca.shares import AttributeCheck
from svc.domain.rca.statistics import wilson
from svc.domain.rca.verdict import (
    REPLACED,
    Concentration,
    Judged,
    RcaChange,
    RcaVerdict,
    judge,
    shifts_traffic,
)

ENGINE: Final = "rule"
SUMMARY_CHARS: Final = 600
TITLE_CHARS: Final = 120
REPORT_CHARS: Final = 20_000
HYPOTHESES: Final = 4
CITED: Final = 5
LISTED: Final = 6
_CITED_ROLES: Final[tuple[EvidenceRole, ...]] = ("witness", "exemplar", "changepoint", "member")

_LACKING: Final = {
    "sample": "one period has too few traces",
    "attributes": "the traces carry too few attributes",
    "pattern": "the change is neither in one place nor everywhere",
}
_SETTLE_LACKING: Final = {
    "sample": "More traffic: at least 50 traces before and after the onset.",
    "attributes": "Attributes on the spans: `service.version`, `user.id`, a tenant, the requested models.",
    "pattern": "Compare failing traces with healthy ones of the same hour until a difference shows.",
}


def report_of(claim: Claim, before: Cohort, after: Cohort, marks: Sequence[Mark]) -> dict[str, Any]:
    """The whole report on a claim, ready for JSON."""
    if claim.sighting:
        verdict: RcaVerdict = "inconclusive"
        change: RcaChange | None = None
        ruled_out, hypotheses, settle = [], [], list(sightings.STEPS)
        summary = sightings.summary_of(claim, before, after)
    else:
        judgement = judge(claim, before, after, marks)
        verdict, change = judgement.verdict, judgement.change
        ruled_out = checks.told(claim, before, after, marks, judgement)
        hypotheses = _hypotheses(claim, after, judgement)
        settle = _settle(judgement)
        summary = _summary(claim, moved_of(claim, before, after), judgement)
    return {
        "engine": ENGINE,
        "sighting": claim.sighting,
        "verdict": verdict,
        "change": change,
        "summary": summary[:SUMMARY_CHARS],
        "ruled_out": ruled_out,
        "hypotheses": hypotheses,
        "settle": settle,
        "populations": {"before": _side(before), "after": _side(after)},
        "detailed_report": _detailed(summary, ruled_out, hypotheses, settle, (before, after))[:REPORT_CHARS],
    }


def moved_of(claim: Claim, before: Cohort, after: Cohort) -> str:
    """What changed, in a sentence."""
    if claim.rate:
        rates = []
        for side in (before, after):
            low, high = map(percent, wilson(side.failures, len(side.units)))
            share = side.failures / len(side.units) if side.units else 0.0
            rates.append(
                f"{count(side.failures)} of {count(len(side.units))} traces"
                f" ({percent(share)}, 95 % between {low} and {high})"
            )
        return f"Before {rates[0]} failed, since then {rates[1]}."
    show = money if claim.money else duration
    old, new = (_middle(side.units) for side in (before, after))
    return f"Among the traces examined, the median went from {show(old)} to {show(new)}."


def _middle(units: Sequence[Unit]) -> float:
    sizes = sorted(unit.size or 0.0 for unit in units)
    return sizes[len(sizes) // 2] if sizes else 0.0


def _side(cohort: Cohort) -> dict[str, Any]:
    return {
        "from": figures.iso(cohort.first),
        "to": figures.iso(cohort.end),
        "traces": len(cohort.units),
        "of": cohort.total,
        "failures": cohort.failures,
        "noted": cohort.noted,
    }


def _summary(claim: Claim, moved: str, judged: Judged) -> str:
    since = f"Since {figures.moment(claim.onset)}"
    return f"{since}: {_why(claim, judged)}. {moved}"


def _why(claim: Claim, judged: Judged) -> str:
    """The verdict in half a sentence."""
    joint = "because" if judged.certain else "since"
    if judged.lacking is not None:
        return f"no cause found: {_LACKING[judged.lacking]}"
    if judged.cause is not None and judged.verdict == "traffic_shift":
        check = judged.cause
        return (
            f"traffic shifted: {label_of(check.name)} moved by {figures.whole(check.variation)},"
            f" and {_explains(check)}"
        )
    if judged.cause is not None:
        focus = next((p for p in judged.places if p.row and p.attribute not in judged.causes), None)
        holder = "" if focus is None else f"; {_holds(claim, focus)}"
        return f"{_worse(claim)} {joint} {_replacements(judged.causes)}{holder}"
    if judged.place is not None:
        reason = f"{_worse(claim)} because of this: " if judged.certain else ""
        mark = judged.mark
        first_sight = "" if mark is None else f", and was first seen {figures.moment(mark.slot)}"
        return f"{reason}{_holds(claim, judged.place)}{first_sight}"
    compared = [label_of(check.name) for check in judged.checks if check.everywhere]
    return f"behaviour changed everywhere it could be compared: by {_listed(compared)}"


def _listed(names: Sequence[str]) -> str:
    """ "user, prompt and release"."""
    names = [*names[:LISTED], f"{len(names) - LISTED} more"] if len(names) > LISTED + 1 else names
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _worse(claim: Claim) -> str:
    complaint = "is failing more often" if claim.rate else "costs more" if claim.money else "is slower"
    return f"{_subject(claim)} {complaint}"


def _subject(claim: Claim) -> str:
    return figures.value(claim.subject.partition(":")[2] or claim.subject)


def _explains(check: AttributeCheck) -> str:
    if check.explained is None:
        return "too little of the earlier traffic remains to say how much this explains"
    return f"this alone explains {figures.whole(check.explained)} of the change"


def _replacements(causes: Sequence[AttributeCheck]) -> str:
    if len(causes) == 1:
        return _replacement(causes[0])
    marks = [check.mark for check in causes if check.mark is not None]
    arrivals = _listed([f"{label_of(mark.attribute)} {figures.value(mark.value)}" for mark in marks])
    first_sight = figures.moment(min(mark.slot for mark in marks))
    return f"{arrivals} arrived together, first seen {first_sight}, and cannot be told apart"


def _replacement(check: AttributeCheck) -> str:
    mark = check.mark
    newcomer = "" if mark is None else f" {figures.value(mark.value)}, first seen {figures.moment(mark.slot)}"
    row = next((r for r in check.rows if mark is not None and mark.value in r.value), None)
    share = "" if row is None else f", now with {figures.whole(row.share_after)} of the traffic"
    return f"another {label_of(check.name)} took over:{newcomer}{share}"


def _holds(claim: Claim, focus: Concentration) -> str:
    """ "holds 71 % of the failures with 19 % of the traffic"."""
    if focus.attribute is not None and focus.row is not None:
        row = focus.row
        label = f"{label_of(focus.attribute.name)} {figures.value(row.value)}"
        portion = (
            f"{figures.whole(row.coverage)} of the failures"
            if claim.rate
            else f"{figures.whole(focus.share)} of the change"
        )
        return f"{label} holds {portion} with {figures.whole(row.share_after)} of the traffic"
    if focus.kind == "signature":
        part = focus.portion
        rates = "" if part is None else f", {percent(part.before)} → {percent(part.after)} of traces"
        return (
            f"one kind of failure, {figures.value(focus.name)}, accounts for"
            f" {figures.whole(focus.share)} of the rise{rates}"
        )
    part = focus.portion
    times = "" if part is None else f", {duration(part.before)} → {duration(part.after)} per trace"
    share = figures.whole(focus.share)
    return f"the time in {figures.value(focus.name)} accounts for {share} of the change{times}"


def _hypotheses(claim: Claim, after: Cohort, judged: Judged) -> list[dict[str, Any]]:
    hypotheses = [_suspect(claim, after, judged, check) for check in judged.causes]
    for focus in judged.places:
        if focus.attribute is not None and focus.attribute in judged.causes:
            continue
        hypotheses.append(
            _hypothesis(
                _place_title(focus),
                "high" if focus.share >= 0.8 and focus is judged.place else "medium",
                _sentence(_holds(claim, focus)) + _odds(focus),
                _cited(claim, after, lambda unit, focus=focus: _inside(unit, focus)),
            )
        )
    for check in judged.checks:
        if check.group == "who" and check is not judged.cause and shifts_traffic(check):
            hypotheses.append(
                _hypothesis(
                    f"{label_of(check.name)} shifted",
                    "low",
                    f"{_sentence(_explains(check))}.",
                    _cited(claim, after, lambda unit: True),
                )
            )
    if not hypotheses and judged.verdict == "behavior_change":
        hypotheses.append(
            _hypothesis(
                "Something outside the traces",
                "low",
                "The change appears within every group that could be compared, which points to a service"
                f" behind it, its data, or the provider.{_uncompared(judged)}",
                _cited(claim, after, lambda unit: True),
            )
        )
    return hypotheses[:HYPOTHESES]


def _suspect(claim: Claim, after: Cohort, judged: Judged, check: AttributeCheck) -> dict[str, Any]:
    """An attribute that the verdict rests on, with where the change sits in it."""
    label, mark = label_of(check.name), check.mark
    newcomer = "" if mark is None else f": {figures.value(mark.value)}"
    focus = next((focus for focus in judged.places if focus.attribute == check), None)
    company = [label_of(other.name) for other in judged.causes if other is not check]
    return _hypothesis(
        f"{label} shifted" if judged.verdict == "traffic_shift" else f"Another {label}{newcomer}",
        "high" if judged.certain else "medium",
        f"The shares moved by {figures.whole(check.variation)}"
        f" ({p_value(check.p_value)}); {_explains(check)}."
        + ("" if mark is None else f" First seen {figures.moment(mark.slot)}.")
        + (f" It cannot be told apart from {_listed(company)}, which arrived with it." if company else "")
        + ("" if focus is None else f" {_sentence(_holds(claim, focus))}{_odds(focus)}"),
        _cited(claim, after, lambda unit: unit.attributes.get(check.name) in check.grown),
    )


def _uncompared(judged: Judged) -> str:
    """Which attributes were replaced so far that they say nothing."""
    names = [label_of(c.name) for c in judged.checks if c.everywhere is None and c.variation >= REPLACED]
    return f" Too little of one period remains to compare {_listed(names)}." if names else ""


def _hypothesis(title: str, confidence: str, rationale: str, traces: list[str]) -> dict[str, Any]:
    return {
        "title": _sentence(title)[:TITLE_CHARS],
        "confidence": confidence,
        "rationale": rationale,
        "evidence_trace_ids": traces,
        "citations": [],
    }


def _sentence(phrase: str) -> str:
    return phrase[:1].upper() + phrase[1:]


def _place_title(focus: Concentration) -> str:
    if focus.attribute is not None:
        return f"{label_of(focus.attribute.name)} {figures.value(focus.name)}"
    return (
        f"{'A kind of failure' if focus.kind == 'signature' else 'The time in'} {figures.value(focus.name)}"
    )


def _odds(focus: Concentration) -> str:
    if focus.row is None or focus.row.odds is None:
        return "."
    odds = focus.row.odds
    reach = f"95 %: {count(odds.low)} to {count(odds.high)}"
    return f": the odds are {count(odds.ratio)} times those of the others ({reach})."


def _inside(unit: Unit, focus: Concentration) -> bool:
    if focus.attribute is not None:
        return unit.attributes.get(focus.attribute.name) == focus.name
    if focus.kind == "signature":
        return unit.signature == focus.name
    return focus.name in unit.tool_ms or focus.name == "models"


def _cited(claim: Claim, after: Cohort, belongs: Any) -> list[str]:
    """Traces of the finding's evidence that are of this kind, failing ones where failing is counted."""
    trace_ids = {unit.trace_id for unit in after.units if belongs(unit) and (unit.failed or not claim.rate)}
    evidence = dict.fromkeys(t for role in _CITED_ROLES for t in claim.evidence.get(role, ()))
    return [trace_id.hex() for trace_id in evidence if trace_id in trace_ids][:CITED]


def _settle(judged: Judged) -> list[str]:
    """What would settle it."""
    if judged.lacking is not None:
        return [_SETTLE_LACKING[judged.lacking]]
    steps = []
    if judged.cause is not None and judged.verdict != "traffic_shift":
        steps.append(_undo([label_of(check.name) for check in judged.causes]))
    elif judged.verdict == "traffic_shift":
        steps.append("Replay the requests of before the onset. The figures should be the old ones.")
    elif judged.place is not None and judged.place.attribute is not None:
        steps.append(
            f"Compare a failing trace of {figures.value(judged.place.name)} with a healthy one of another"
            " value from the same hour."
        )
    elif judged.place is not None and judged.place.kind == "signature":
        steps.append(
            "Read the message behind this kind of failure, and check what its service did at the onset."
        )
    else:
        steps.append(
            "Check logs and deployments of everything the tool or model depends on, around the onset."
        )
    unknown = [label_of(check.name) for check in judged.checks if not check.usable and not min(check.known)]
    if unknown:
        steps.append(f"Record what no span contains so far: {', '.join(unknown[:6])}.")
    return steps


def _undo(labels: Sequence[str]) -> str:
    """Which of what took over to bring back; a release first, which holds the others."""
    stays = "for part of the traffic. If the change stays, the cause is something else."
    if len(labels) == 1:
        return f"Bring back the previous {labels[0]} {stays}"
    if labels[0] == label_of("release"):
        names = _listed(labels[1:])
        return f"Roll back the release, which also reverts {names}, {stays} Otherwise change one at a time."
    sequence = ", then the previous ".join(labels)
    return (
        f"Bring back the previous {sequence}, each alone for part of the traffic. The one that ends the"
        " change is the cause."
    )


def _detailed(
    summary: str,
    ruled_out: Sequence[dict[str, str]],
    hypotheses: Iterable[dict[str, Any]],
    settle: Iterable[str],
    sides: tuple[Cohort, Cohort],
) -> str:
    lines = ["## What changed", "", summary, ""]
    for name, side in zip(("Before", "After"), sides, strict=True):
        lines.append(
            f"- {name}: {figures.moment(side.first)} to {figures.moment(side.end)},"
            f" {count(len(side.units))} of {count(side.total)} traces."
            + (f" {side.noted}" if side.noted else "")
        )
    if not ruled_out:
        return "\n".join([*lines, "", "## What to do", "", *(f"- {step}" for step in settle)])
    lines += ["", "## Hypotheses", ""]
    lines += [
        f"- **{hypothesis['title']}** ({hypothesis['confidence']}): {hypothesis['rationale']}"
        for hypothesis in hypotheses
    ] or ["None."]
    lines += ["", "## Checks", "", "| Check | Assessment | Measurement |", "|---|---|---|"]
    lines += [
        f"| {check['check']} | {check['assessment'].replace('_', ' ')}"
        f" | {check['measurement'].replace('|', '/')} |"
        for check in ruled_out
    ]
    lines += ["", "## How to confirm", "", *(f"- {step}" for step in settle)]
    return "\n".join(lines)
