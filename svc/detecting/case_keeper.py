"""The case keeper: confirms findings by rule, joins those of one outage into one case, closes what is over.

Owns the order in which a project's findings become cases: what the rule says of each that is withheld, then
which belong together, then who is cause and who effect, at last what has recovered. It waits until every
detector has judged as far as the others, because a cause that one has not seen yet would leave its effects to
stand for themselves. All it does may be done again, and is not while a project's findings stand as they stood
when it was done. Never decides over people or agents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from protocol.detection import RULE, NotOpened, Triage
from svc.domain.detect.detectors.base import MEASURES, rating_of, site_of
from svc.domain.detect.detectors.new_signature import NEW_SIGNATURE
from svc.domain.detect.detectors.table import DETECTORS
from svc.domain.detect.engine.change_point import Onset
from svc.domain.detect.engine.slots import slot_at
from svc.domain.detect.findings import case_rules
from svc.domain.detect.findings.bucket import Watched
from svc.domain.detect.findings.case_rules import (
    EXPLAINED_SHARE,
    Candidate,
    cases,
    explained_by_tool,
    explained_share,
    joined,
    roles,
)
from svc.domain.quantities import percent
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.casework import CaseworkStore, Standing
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.counting.tallies import TallyStore
from svc.store.detection.judging.due import DueStore

#: The lease of the case keeper stands among those of the detectors.
NAME: Final = "cases"
ROUND_S: Final = 10.0
#: Words that a ruling of the rule begins with while it withholds.
WITHHELD: Final = "Withheld: "
#: What stands as it stood is seen to again after so long: traces that come late change what is shared.
SETTLED_FOR_S: Final = 300.0
#: Detectors that wait for no watermark: no other detector can be as far as they are.
AHEAD: Final = frozenset({"secret_leak"})
#: What drifts by its cause's name in the order of causes.
_CAUSES: Final[Mapping[str, str]] = {"turn_cost": "cost"}


@attrs.frozen(eq=False)
class _Known:
    """A finding with what it may share with others."""

    standing: Standing
    candidate: Candidate


@attrs.define(eq=False)
class CaseKeeper:
    """`round` sees to all projects once, and says how long to rest."""

    work: CaseworkStore
    due: DueStore
    tallies: TallyStore
    findings: FindingStates
    lists: CaseFindings
    states: CaseStates
    now: Callable[[], datetime]
    #: What was done: findings `confirmed`, cases `opened`, findings `recovered`.
    counts: Counter[str] = attrs.field(factory=Counter)
    round_s: float = ROUND_S
    #: By project: the mark of its findings when nothing was left to do, and until when that holds.
    _settled: dict[int, tuple[int, float]] = attrs.field(factory=dict, init=False)

    async def round(self) -> float:
        """See to every project in which something is live. Returns the seconds to rest."""
        waiting = set(await self.work.waiting())
        self._settled = {number: known for number, known in self._settled.items() if number in waiting}
        for project_id in sorted(waiting):
            await self.states.end_mutes(project_id, self.now())
            if await self.work.behind(project_id, DETECTORS.keys() - AHEAD):
                continue
            if await self.due.still(project_id, NAME):
                try:
                    await self._project(project_id)
                finally:
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                        await self.due.give_up(project_id, NAME, None)
        return self.round_s

    async def _project(self, project_id: int) -> None:
        stands = await self.work.standing(project_id, self.now())
        mark, until_s = self._settled.pop(project_id, (None, 0.0))
        if mark != stands.mark or trio.current_time() >= until_s:
            await self._see_to(project_id, stands.findings)
            until_s = trio.current_time() + SETTLED_FOR_S
        # What this round changed has another mark, and the next one sees to it.
        self._settled[project_id] = stands.mark, until_s

    async def _see_to(self, project_id: int, standing: Sequence[Standing]) -> None:
        active: list[_Known] = []
        reported_ids = {finding.id for finding in standing if _reported_only(finding)}
        for finding in standing:
            if finding.id in reported_ids:
                await self._report(project_id, finding)
        decisions = [(finding, _withheld(finding)) for finding in standing if finding.id not in reported_ids]
        confirmed_causes = {
            (finding.cause.detector, finding.subject)
            for finding, reason in decisions
            if not finding.closed and (finding.confirmed or reason is None)
        }
        for finding, reason in decisions:
            if (finding.payload.get("with"), finding.subject) in confirmed_causes:
                # It says how another fails that is confirmed.
                reason = None
            if reason is None or finding.confirmed:
                active.append(await self._with_candidate(project_id, finding))
            elif finding.decided_by is None and not finding.closed:
                await self._withhold(project_id, finding, reason)
        explained_ids = await self._explain(project_id, active)
        active = [entry for entry in active if entry.standing.id not in explained_ids]
        groups = cases([entry.candidate for entry in active if not entry.standing.closed])
        by_key = {str(entry.standing.id): entry for entry in active}
        for group in groups:
            await self._group(project_id, [by_key[candidate.key] for candidate in group], by_key)
        for finding in standing:
            if finding.recovered_at is not None and not finding.closed:
                await self.findings.recover(project_id, finding.id, finding.recovered_at)
                self.counts["recovered"] += 1

    async def _report(self, project_id: int, finding: Standing) -> None:
        """Confirm what has failed from the start; there is too little for a case yet."""
        if not finding.confirmed:
            ruling = Triage("positive", "confirm", _because(finding))
            await self.findings.rule(project_id, finding.id, ruling, RULE, self.now())
            self.counts["confirmed"] += 1

    async def _withhold(self, project_id: int, finding: Standing, why: str) -> None:
        if finding.summary != why:
            await self.findings.rule(project_id, finding.id, Triage("unclear", "wait", why), RULE, self.now())

    async def _with_candidate(self, project_id: int, finding: Standing) -> _Known:
        traces = await self.work.traces(project_id, finding.id, "witness")
        if not traces:
            traces = await self.work.traces(project_id, finding.id, "member")
        subjects = {finding.subject}
        if finding.subject.startswith("tool:") and finding.cause.detector != "secret_leak":
            subjects |= {f"site:{site}" for site in await self.work.sites(project_id, traces)}
        if rating_of(finding.subject) is not None:
            # What people think of a call site's answers changes with whatever happens there.
            subjects.add(f"site:{site_of(finding.subject)}")
        median = slot_at(finding.onset_at.timestamp())
        cause = finding.cause.detector if finding.cause.detector in DETECTORS else finding.cause.kind
        if finding.cause.kind in MEASURES and MEASURES[finding.cause.kind].unit is not None:
            cause = _CAUSES.get(finding.cause.kind, finding.cause.kind)
        return _Known(
            finding,
            Candidate(
                key=str(finding.id),
                cause=cause,
                onset=Onset(
                    slot_at(finding.onset_low_at.timestamp()),
                    median,
                    slot_at(finding.onset_high_at.timestamp()),
                ),
                traces=traces,
                subjects=frozenset(subjects),
            ),
        )

    async def _explain(self, project_id: int, active: Sequence[_Known]) -> set[UUID]:
        """Withhold what a finding explains that is closed by now: no case is there to join. Which."""
        explained_ids: set[UUID] = set()
        causes = [entry for entry in active if entry.standing.closed]
        for effect in [
            effect for effect in active if not effect.standing.closed and not effect.standing.confirmed
        ]:
            for cause in causes:
                if cause.candidate.rank < effect.candidate.rank and joined(effect.candidate, cause.candidate):
                    share = await self._share(project_id, effect, cause)
                    if share >= EXPLAINED_SHARE:
                        why = f"{WITHHELD}{percent(share)} of it was “{cause.standing.title}”, which is over."
                        await self._withhold(project_id, effect.standing, why)
                        explained_ids.add(effect.standing.id)
                        break
        return explained_ids

    async def _group(self, project_id: int, group: Sequence[_Known], by_key: Mapping[str, _Known]) -> None:
        """One outage: its case, the first cause first, and everything else under it."""
        shares: dict[tuple[str, str], float] = {}
        for position, effect in enumerate(group):
            for cause in group[:position]:
                shares[effect.candidate.key, cause.candidate.key] = await self._share(
                    project_id, effect, cause
                )
        assignments = roles([member.candidate for member in group], shares)
        now = self.now()
        for role in assignments:
            standing = by_key[role.key].standing
            if role.role == "cause" and not standing.confirmed:
                ruling = Triage("positive", "open_case", _because(standing))
                await self.findings.rule(project_id, standing.id, ruling, RULE, now)
                self.counts["confirmed"] += 1
        # The case that is there already, the oldest of them; else one for the first cause.
        case_findings = [
            member.standing
            for member in group
            if member.standing.case_id is not None and member.standing.case_open
        ]
        leader = by_key[assignments[0].key].standing
        if case_findings:
            case_id: Any = min(case_findings, key=lambda finding: finding.onset_at).case_id
        else:
            opened = await self.lists.open(project_id, leader.id, RULE, now)
            if isinstance(opened, NotOpened):
                return
            case_id = opened.id
            self.counts["opened"] += opened.how != "known"
        for role in assignments:
            standing = by_key[role.key].standing
            share = None if role.explained_share is None else round(role.explained_share, 3)
            if standing.case_id != case_id or standing.role != role.role or standing.explained_share != share:
                await self.lists.join(project_id, case_id, standing.id, role.role, share, RULE, now)
            if role.role == "effect" and standing.status == "withheld" and role.under is not None:
                explanation = by_key[role.under].standing
                why = f"{WITHHELD}{percent(share or 0)} of it is “{explanation.title}”, whose case lists it."
                await self._withhold(project_id, standing, why)
        is_led = leader.leads and leader.case_id == case_id
        if not is_led and not (case_findings and leader.cause.detector == NEW_SIGNATURE.name):
            # A new kind alone is left of a case when the failures of its tool are over: those led it.
            await self.work.lead(project_id, case_id, leader.id)

    async def _share(self, project_id: int, effect: _Known, cause: _Known) -> float:
        """How much of an effect its cause explains, 0 to 1."""
        kinds = effect.standing.cause.kind, cause.standing.cause.kind
        if "secret_leak" in (effect.standing.cause.detector, cause.standing.cause.detector):
            return 0.0
        if kinds == ("turn_duration", "tool_duration"):
            return await self._by_tool(project_id, effect, cause)
        bucket = Watched.of_reference(effect.standing.reference)
        usual = _usual(effect.standing)
        if bucket is None or usual is None or MEASURES[bucket.measure].details:
            return 0.0
        first, end = effect.candidate.onset.median, slot_at(effect.standing.last_seen_at.timestamp())
        overlap = await self.work.counted(project_id, bucket, cause.candidate.traces, first)
        if MEASURES[bucket.measure].unit is None:
            rates = (await self.tallies.rates(project_id, bucket.whole, first, end)).between(first, end)
            baseline = (await self.tallies.rates(project_id, bucket.whole, *usual)).between(*usual)
            present = (int(rates.units.sum()), int(rates.failures.sum()))
            without = (
                present[0] - sum(units for _, units, _ in overlap),
                present[1] - sum(failures for _, _, failures in overlap),
            )
            baseline_rate = _rate(int(baseline.units.sum()), int(baseline.failures.sum()))
            return explained_share(_rate(*present) - baseline_rate, max(_rate(*without), 0.0) - baseline_rate)
        sizes = (await self.tallies.sizes(project_id, bucket.whole, first, end)).between(first, end)
        usual_mean = (await self.tallies.sizes(project_id, bucket.whole, *usual)).between(
            *usual
        ).mean() or 0.0
        mean_without = sizes.mean((bin_, units) for bin_, units, _ in overlap)
        return explained_share(
            (sizes.mean() or usual_mean) - usual_mean,
            (usual_mean if mean_without is None else mean_without) - usual_mean,
        )

    async def _by_tool(self, project_id: int, effect: _Known, cause: _Known) -> float:
        """How much of slower turns a slower tool explains, by what both grew a trace."""
        growths: list[float] = []
        rows: list[float] = []
        for side in (cause, effect):
            bucket, usual = Watched.of_reference(side.standing.reference), _usual(side.standing)
            if bucket is None or usual is None:
                return 0.0
            first, end = effect.candidate.onset.median, slot_at(effect.standing.last_seen_at.timestamp())
            now = (await self.tallies.sizes(project_id, bucket.whole, first, end)).between(first, end)
            baseline = (await self.tallies.sizes(project_id, bucket.whole, *usual)).between(*usual)
            growths.append((now.mean() or 0.0) - (baseline.mean() or 0.0))
            rows.append(float(now.counts.sum()))
        calls = rows[0] / rows[1] if rows[1] else 0.0
        return explained_by_tool(growths[0] * calls, growths[1])


def _reported_only(finding: Standing) -> bool:
    """Whether it has failed from the start in too few traces for a case: then it is only shown."""
    return (
        finding.payload.get("from_birth") == "finding"
        and finding.decided_by in (None, "rule")
        and finding.case_id is None
        and not finding.closed
    )


def _withheld(finding: Standing) -> str | None:
    """Why the rule withholds a finding; None: it is confirmed by it."""
    if finding.payload.get("confirm") == "at_once":
        return None
    if finding.payload.get("from_birth") == "case":
        return None
    rule = finding.payload.get("rule")
    if rule is None:
        return f"{WITHHELD}{finding.payload.get('withheld', 'it is for information')}."
    failing = case_rules.failing(
        case_rules.Evidence(
            harmful=bool(rule["harmful"]),
            rarer=bool(rule["rarer"]),
            slots=rule["slots"],
            traces=rule["traces"],
            sessions=rule["sessions"],
            reference=(rule["reference"][0], rule["reference"][1]),
            blocks=rule["blocks"],
            seen_at=rule["seen_at"],
            rate=None if rule["rate"] is None else (rule["rate"][0], rule["rate"][1]),
            ratio=rule["ratio"],
            dollars_a_day=rule["dollars_a_day"],
        )
    )
    if not failing:
        return None
    return WITHHELD + "; ".join(case_rules.REASONS[condition] for condition in failing) + "."


def _because(finding: Standing) -> str:
    if finding.payload.get("confirm") == "at_once":
        return "Confirmed: one sighting of such a secret is enough."
    if finding.payload.get("from_birth") is not None:
        return "Confirmed: it has failed from its first traces on, more often than chance explains."
    return "Confirmed: all conditions of the rule hold."


def _usual(finding: Standing) -> tuple[int, int] | None:
    reference = finding.payload.get("rule", {}).get("reference")
    return (reference[0], reference[1]) if reference and reference[1] else None


def _rate(units: int, failures: int) -> float:
    return failures / units if units > 0 else 0.0
