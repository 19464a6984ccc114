"""The case keeper: confirms findings by rule, joins those of one outage into one case, closes what is over.

Owns the order in which a project's findings become cases: what the rule says of each that is withheld, then
which belong together, then who is cause and who effect, at last what has recovered. It waits until every
detector has judged as far as the others, because a cause that one has not seen yet would leave its effects to
stand for themselves. All it does may be done again. Never decides over people or agents.
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
from svc.domain.detect import confirm
from svc.domain.detect.bucket import Watched
from svc.domain.detect.join import (
    EXPLAINED_SHARE,
    Candidate,
    cases,
    explained_by_tool,
    explained_share,
    joined,
    roles,
)
from svc.domain.detect.observed import MEASURES
from svc.domain.detect.onset import Onset
from svc.domain.detect.slots import slot_at
from svc.domain.detect.table import DETECTORS
from svc.domain.quantities import percent
from svc.store.detection.case_findings import CaseFindings
from svc.store.detection.case_states import CaseStates
from svc.store.detection.casework import CaseworkStore, Standing
from svc.store.detection.due import DueStore
from svc.store.detection.finding_states import FindingStates
from svc.store.detection.tallies import TallyStore

#: The lease of the case keeper stands among those of the detectors.
NAME: Final = "cases"
ROUND_S: Final = 10.0
#: Words that a ruling of the rule begins with while it withholds.
WITHHELD: Final = "Withheld: "
#: Detectors that wait for no watermark, so that nobody can be as far as they are.
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

    async def round(self) -> float:
        """See to every project in which something is live. Returns the seconds to rest."""
        for project_id in await self.work.waiting():
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
        standing = await self.work.standing(project_id, self.now())
        known: list[_Known] = []
        ruled = [(one, _withheld(one)) for one in standing]
        surely = {
            (one.cause.detector, one.subject)
            for one, held in ruled
            if not one.closed and (one.confirmed or held is None)
        }
        for one, held in ruled:
            if (one.payload.get("with"), one.subject) in surely:
                # It says how another fails that is confirmed.
                held = None
            if held is None or one.confirmed:
                known.append(await self._known(project_id, one))
            elif one.decided_by is None and not one.closed:
                await self._withhold(project_id, one, held)
        explained = await self._explain(project_id, known)
        known = [one for one in known if one.standing.id not in explained]
        groups = cases([one.candidate for one in known if not one.standing.closed])
        by_key = {str(one.standing.id): one for one in known}
        for group in groups:
            await self._group(project_id, [by_key[candidate.key] for candidate in group], by_key)
        for one in standing:
            if one.recovered_at is not None and not one.closed:
                await self.findings.recover(project_id, one.id, one.recovered_at)
                self.counts["recovered"] += 1

    async def _withhold(self, project_id: int, one: Standing, why: str) -> None:
        if one.summary != why:
            await self.findings.rule(project_id, one.id, Triage("unclear", "wait", why), RULE, self.now())

    async def _known(self, project_id: int, one: Standing) -> _Known:
        traces = await self.work.traces(project_id, one.id, "witness")
        if not traces:
            traces = await self.work.traces(project_id, one.id, "member")
        subjects = {one.subject}
        if one.subject.startswith("tool:") and one.cause.detector != "secret_leak":
            subjects |= {f"site:{site}" for site in await self.work.sites(project_id, traces)}
        median = slot_at(one.onset_at.timestamp())
        cause = one.cause.detector if one.cause.detector in DETECTORS else one.cause.kind
        if one.cause.kind in MEASURES and MEASURES[one.cause.kind].unit is not None:
            cause = _CAUSES.get(one.cause.kind, one.cause.kind)
        return _Known(
            one,
            Candidate(
                key=str(one.id),
                cause=cause,
                onset=Onset(
                    slot_at(one.onset_low_at.timestamp()), median, slot_at(one.onset_high_at.timestamp())
                ),
                traces=traces,
                subjects=frozenset(subjects),
            ),
        )

    async def _explain(self, project_id: int, known: Sequence[_Known]) -> set[UUID]:
        """Withhold what a finding explains that is closed by now: no case is there to join. Which."""
        explained: set[UUID] = set()
        over = [one for one in known if one.standing.closed]
        for one in [one for one in known if not one.standing.closed and not one.standing.confirmed]:
            for cause in over:
                if cause.candidate.rank < one.candidate.rank and joined(one.candidate, cause.candidate):
                    share = await self._share(project_id, one, cause)
                    if share >= EXPLAINED_SHARE:
                        why = f"{WITHHELD}{percent(share)} of it was “{cause.standing.title}”, which is over."
                        await self._withhold(project_id, one.standing, why)
                        explained.add(one.standing.id)
                        break
        return explained

    async def _group(self, project_id: int, group: Sequence[_Known], by_key: Mapping[str, _Known]) -> None:
        """One outage: its case, the first cause first, and everything else under it."""
        shares: dict[tuple[str, str], float] = {}
        for place, effect in enumerate(group):
            for cause in group[:place]:
                shares[effect.candidate.key, cause.candidate.key] = await self._share(
                    project_id, effect, cause
                )
        told = roles([one.candidate for one in group], shares)
        now = self.now()
        for role in told:
            one = by_key[role.key].standing
            if role.role == "cause" and not one.confirmed:
                ruling = Triage("positive", "open_case", _because(one))
                await self.findings.rule(project_id, one.id, ruling, RULE, now)
                self.counts["confirmed"] += 1
        # The case that is there already, the oldest of them; else one for the first cause.
        listed = [
            one.standing for one in group if one.standing.case_id is not None and one.standing.case_open
        ]
        leader = by_key[told[0].key].standing
        if listed:
            case_id: Any = min(listed, key=lambda one: one.onset_at).case_id
        else:
            opened = await self.lists.open(project_id, leader.id, RULE, now)
            if isinstance(opened, NotOpened):
                return
            case_id = opened.id
            self.counts["opened"] += opened.how != "known"
        for role in told:
            one = by_key[role.key].standing
            share = None if role.explained_share is None else round(role.explained_share, 3)
            if one.case_id != case_id or one.role != role.role or one.explained_share != share:
                await self.lists.join(project_id, case_id, one.id, role.role, share, RULE, now)
            if role.role == "effect" and one.status == "withheld" and role.under is not None:
                above = by_key[role.under].standing
                why = f"{WITHHELD}{percent(share or 0)} of it is “{above.title}”, whose case lists it."
                await self._withhold(project_id, one, why)
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
        taken = await self.work.counted(project_id, bucket, cause.candidate.traces, first)
        if MEASURES[bucket.measure].unit is None:
            rates = (await self.tallies.rates(project_id, bucket.whole, first, end)).between(first, end)
            before = (await self.tallies.rates(project_id, bucket.whole, *usual)).between(*usual)
            present = (int(rates.units.sum()), int(rates.failures.sum()))
            without = (
                present[0] - sum(units for _, units, _ in taken),
                present[1] - sum(failures for _, _, failures in taken),
            )
            was = _rate(int(before.units.sum()), int(before.failures.sum()))
            return explained_share(_rate(*present) - was, max(_rate(*without), 0.0) - was)
        sizes = (await self.tallies.sizes(project_id, bucket.whole, first, end)).between(first, end)
        usually = (await self.tallies.sizes(project_id, bucket.whole, *usual)).between(*usual).mean() or 0.0
        less = sizes.mean((bin_, units) for bin_, units, _ in taken)
        return explained_share(
            (sizes.mean() or usually) - usually, (usually if less is None else less) - usually
        )

    async def _by_tool(self, project_id: int, effect: _Known, cause: _Known) -> float:
        """How much of slower turns a slower tool explains, by what both grew a trace."""
        grown: list[float] = []
        rows: list[float] = []
        for one in (cause, effect):
            bucket, usual = Watched.of_reference(one.standing.reference), _usual(one.standing)
            if bucket is None or usual is None:
                return 0.0
            first, end = effect.candidate.onset.median, slot_at(effect.standing.last_seen_at.timestamp())
            now = (await self.tallies.sizes(project_id, bucket.whole, first, end)).between(first, end)
            was = (await self.tallies.sizes(project_id, bucket.whole, *usual)).between(*usual)
            grown.append((now.mean() or 0.0) - (was.mean() or 0.0))
            rows.append(float(now.counts.sum()))
        calls = rows[0] / rows[1] if rows[1] else 0.0
        return explained_by_tool(grown[0] * calls, grown[1])


def _withheld(one: Standing) -> str | None:
    """Why the rule withholds a finding; None: it is confirmed by it."""
    if one.payload.get("confirm") == "at_once":
        return None
    rule = one.payload.get("rule")
    if rule is None:
        return f"{WITHHELD}{one.payload.get('withheld', 'it is for information')}."
    failing = confirm.failing(
        confirm.Evidence(
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
    return WITHHELD + "; ".join(confirm.REASONS[condition] for condition in failing) + "."


def _because(one: Standing) -> str:
    if one.payload.get("confirm") == "at_once":
        return "Confirmed: one sighting of such a secret is enough."
    return "Confirmed: all conditions of the rule hold."


def _usual(one: Standing) -> tuple[int, int] | None:
    reference = one.payload.get("rule", {}).get("reference")
    return (reference[0], reference[1]) if reference and reference[1] else None


def _rate(units: int, failures: int) -> float:
    return failures / units if units > 0 else 0.0
