"""The judge of one detector: what changed of its subjects, slot by slot as if live, becomes findings.

Owns the order of a look: hold a project, judge each subject that is due up to the watermark, tell what
changed to the findings, gather their evidence, then keep the state and settle what was due. A crash anywhere
before the last step leaves the look to be done again, which tells the same things and changes nothing. There
is one judge for each detector, so that one that raises is left out alone. Never confirms a finding and never
opens a case: that is the case keeper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from protocol.detection import Detection, Firing
from svc.detecting.detector_runner import DetectorRunner, Scope
from svc.domain.detect.detectors.base import AGENT, MEASURES, RATED, SITE, MeasureName, site_of
from svc.domain.detect.engine.axis import UNIT_DOLLARS, bin_of
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, slot_at
from svc.domain.detect.findings import severity
from svc.domain.detect.findings.bucket import BucketState, Watched
from svc.domain.detect.findings.changes import Change
from svc.domain.detect.findings.finding_text import Told, instant, is_harmful, is_told, subject_of, told
from svc.domain.detect.findings.judging import Judgement, cleared, judge, moved, needs_from
from svc.domain.marks.detector import MARK_OF
from svc.store.detection.judging.due import DueBucket, JudgedSubject
from svc.store.detection.judging.judge_evidence import BASELINE_SLOTS, Breadth, Gather

#: Pages of evidence that one look gathers of one finding.
PAGES: Final = 20
#: A cost is taken apart by the traces of so long before and since: weekdays and weekends alike.
PARTS_SLOTS: Final = 7 * SLOTS_PER_DAY


@attrs.define(eq=False)
class Judge(DetectorRunner):
    """Judges the rates or sizes of one detector."""

    async def subject(self, scope: Scope, bucket: Watched, due: Sequence[DueBucket]) -> bool:
        """Judge one subject up to the watermark."""
        stores, name, until = self.stores, self.detector.name, scope.work.until
        first = await stores.evidence.first_slot(scope.project_id, bucket)
        if first is None:
            # All of it was counted elsewhere meanwhile. Left due, it would hold up every case of the project.
            await self._close_undone(scope, bucket, frozenset())
            await stores.due.settle(scope.project_id, name, due, until, None)
            return False
        since = min((due_bucket.from_slot for due_bucket in due), default=until)
        stored_state = await stores.states.before(scope.project_id, name, bucket, since)
        if stored_state is None and first < scope.work.fine_from:
            # What it was judged from is no longer there slot by slot.
            stored_state = await stores.states.oldest(scope.project_id, name, bucket)
        if stored_state is not None and stored_state.alarmed and not self._lives(scope, bucket):
            # People saw to what it fired, so that it begins anew from here.
            stored_state = cleared(stored_state)
        if stored_state is not None and await self._is_parted(scope, bucket, stored_state):
            parted = attrs.evolve(stored_state, cursor=until, parted=True)
            written = JudgedSubject(bucket, parted, stored_state.cursor, ())
            await stores.due.settle(scope.project_id, name, due, until, written)
            return False
        if stored_state is not None:
            stored_state = attrs.evolve(stored_state, parted=False)
        judged = await self._judged(scope, bucket, stored_state, first)
        move = scope.moves.get(bucket.reference)
        state, checkpoints, since_kept = (
            judged.state,
            judged.checkpoints,
            0 if stored_state is None else stored_state.cursor,
        )
        if move is not None:
            from_slot = slot_at(move.from_at.timestamp())
            present = moved(state, judged.counted.between(from_slot, until), from_slot, until)
            if present is not None and await stores.references.applied(
                scope.project_id, move, instant(until)
            ):
                # Nothing goes back behind what people said is normal now.
                state, checkpoints, since_kept = present, (present,), -1
        else:
            outcome, held = await self._tell(scope, bucket, judged)
            if outcome == "waits":
                await self._settle_before(scope, bucket, due, judged, since_kept, held)
                return True
            if outcome == "closed":
                state = cleared(state)
        written = JudgedSubject(bucket, state, since_kept, checkpoints)
        await stores.due.settle(scope.project_id, name, due, until, written)
        return False

    async def _settle_before(
        self,
        scope: Scope,
        bucket: Watched,
        due: Sequence[DueBucket],
        judged: Judgement,
        since_kept: int,
        held: int,
    ) -> None:
        """Keep what came before the change that waits, as of a midnight without an alarm: others go by it."""
        before = [state for state in judged.checkpoints if state.cursor <= held and not state.alarmed]
        if before:
            written = JudgedSubject(bucket, before[-1], since_kept, before)
            until = before[-1].cursor
            await self.stores.due.settle(scope.project_id, self.detector.name, due, until, written)

    async def _is_parted(self, scope: Scope, bucket: Watched, state: BucketState) -> bool:
        """Whether a call site that was learned as a whole gives way: each agent that was seen there lately is
        watched by itself, and nothing is wrong with the whole.
        """
        is_whole = self.detector.by_agent and bucket.subject.startswith(SITE)
        if not is_whole or scope.work.site_grain != "both" or state.alarmed:
            return False
        if not scope.states:
            scope.states.update(await self.stores.states.all(scope.project_id, self.detector.name))
        orders = await self._orders(scope, bucket.measure)
        agents = [
            scope.states.get(Watched(bucket.measure, subject))
            for subject in orders
            if subject.startswith(AGENT) and site_of(subject) == site_of(bucket.subject)
        ]
        recent = [agent for agent in agents if agent is None or not agent.is_silent(scope.work.until)]
        return bool(recent) and all(agent is not None and agent.watches for agent in recent)

    def _lives(self, scope: Scope, bucket: Watched) -> bool:
        return any(finding.reference == bucket.reference for finding in scope.live)

    async def _judged(
        self, scope: Scope, bucket: Watched, stored_state: BucketState | None, first: int
    ) -> Judgement:
        project_id, until = scope.project_id, scope.work.until
        # Shapes of answers are compared over every answer there is.
        begin = first if MEASURES[bucket.measure].details else needs_from(stored_state, first)
        # What people said is normal may begin before what the engine needs.
        begin = min([begin, *(slot_at(m.from_at.timestamp()) for m in scope.moves.values())])
        counts = await self.stores.evidence.counted(project_id, bucket, begin, until)
        order = await self._order(scope, bucket, stored_state)
        return await trio.to_thread.run_sync(
            judge, stored_state, first, counts, scope.months, scope.tuning, until, order
        )

    async def _order(self, scope: Scope, bucket: Watched, stored_state: BucketState | None) -> int:
        """Which subject of its measure appeared before which: those that learn share their false alarms."""
        rate = None if stored_state is None else stored_state.rate
        if self.detector.engine != "rate" or (rate is not None and rate.reference is not None):
            return 1
        orders = await self._orders(scope, bucket.measure)
        return orders.get(bucket.subject, len(orders) + 1)

    async def _orders(self, scope: Scope, measure: MeasureName) -> Mapping[str, int]:
        if measure not in scope.orders:
            scope.orders[measure] = await self.stores.evidence.appearances(scope.project_id, measure)
        return scope.orders[measure]

    async def _tell(self, scope: Scope, bucket: Watched, judged: Judgement) -> tuple[str, int]:
        """Tell the findings what changed, oldest first, and close those that late news undid.

        What came of it, and the slot before which everything was told.
        """
        if MARK_OF.get(bucket.measure) in scope.work.muted_marks:
            return "told", scope.work.until
        keys: set[str] = set()
        outcome = "told"
        # Of an agent whose call site was known as a whole, nothing is from birth; people who find every third
        # answer bad from the first day on find no fault that anybody made.
        is_whole = scope.work.site_grain == "both" and bucket.subject.startswith(AGENT)
        is_early = not is_whole and not bucket.subject.startswith(RATED)
        changes = sorted(
            (
                change
                for change in judged.changes
                if (is_early or change.arm != "early") and is_told(bucket.measure, change.direction)
            ),
            key=lambda change: change.fired,
        )
        misfits = await self._misfits(scope, bucket, judged.state) if changes else None
        for change in changes:
            words = await self._words(scope, bucket, change, misfits)
            keys.add(words.cause.key)
            detection = self._detection(scope, bucket, change, words)
            is_only = sum(other_change.direction == change.direction for other_change in changes) == 1
            is_noted = is_only and change.recovered is None and _noted(scope, change, words)
            note = None if is_noted else await self._note(scope, bucket, change, words, misfits)
            fired = await self.stores.verbs.fire(scope.project_id, detection, (), note=note)
            if fired.did == "waits":
                return "waits", change.onset.low
            if fired.did == "closed":
                outcome = "closed" if change.recovered is None else outcome
                continue
            await self._gather(scope, bucket, change, fired.finding_id, misfits)
        await self._close_undone(scope, bucket, keys)
        return outcome, scope.work.until

    async def _close_undone(self, scope: Scope, bucket: Watched, keys: Set[str]) -> None:
        """End what was judged from before it began, and is not there any more."""
        for finding in scope.live:
            undone = finding.reference == bucket.reference and finding.cause.key not in keys
            if undone and finding.recovered_at is None and finding.decided_by != "person":
                await self.stores.verbs.recover(scope.project_id, finding.id, instant(scope.work.until))

    async def _words(
        self, scope: Scope, bucket: Watched, change: Change, misfits: frozenset[str] | None
    ) -> Told:
        """The change in words, with what the rule needs to decide of it."""
        project_id, end = scope.project_id, _end(change, scope.work.until)
        first = change.onset.median
        if change.shown is None and change.direction == "up" and misfits is None:
            spread = await self.stores.evidence.spread(project_id, bucket, first, end)
        else:
            failing = misfits if change.direction == "up" else None
            spread = await self.stores.traces.spread(project_id, bucket, first, end, failing)
        touched_traces = spread.traces
        if change.shown is not None:
            touched_traces = change.shown.rows
        elif change.now is not None and change.direction == "up":
            touched_traces = change.now.failures
        traces = await self.stores.evidence.traces(project_id, first, end)
        words = told(self.detector.name, bucket, change, min(touched_traces / traces, 1.0) if traces else 0.0)
        parts: dict[str, Any] = {}
        if bucket.measure == "turn_cost":
            parts["parts"] = await self._cost_parts(project_id, bucket, change, end)
        signatures = await self.stores.evidence.signatures(project_id, bucket, first, end)
        return attrs.evolve(
            words,
            payload={
                **words.payload,
                **parts,
                "traces": spread.traces if change.shown is None else touched_traces,
                "signatures": [
                    {
                        "signature": signature.name,
                        "traces": signature.traces,
                        "since": instant(signature.first).isoformat(),
                    }
                    for signature in signatures
                ],
                "rule": _rule(bucket, change, spread, end, _dollars(bucket, change)),
            },
        )

    async def _cost_parts(
        self, project_id: int, bucket: Watched, change: Change, end: int
    ) -> list[dict[str, Any]]:
        """What made the cost change: calls, tokens a call, the share that no cache held, the price."""
        if change.usual is None:
            return []
        earlier = max(change.usual.first, change.usual.end - PARTS_SLOTS), change.usual.end
        later = change.onset.median, min(end, change.onset.median + PARTS_SLOTS)
        factors = await self.stores.traces.cost_factors(project_id, bucket, earlier, later)
        return [attrs.asdict(factor) for factor in factors]

    async def _misfits(self, scope: Scope, bucket: Watched, state: BucketState) -> frozenset[str] | None:
        """The shapes of answers that are not as they should be; None where failures were counted as such."""
        if state.learned is None:
            return None
        shapes = await self.stores.evidence.details(scope.project_id, bucket, 0, scope.work.until)
        return frozenset(shape for shape in shapes if not state.learned.fits(shape))

    def _detection(self, scope: Scope, bucket: Watched, change: Change, words: Told) -> Detection:
        kind, name = subject_of(bucket)
        end = _end(change, scope.work.until)
        return Detection(
            cause=words.cause,
            title=words.title,
            basis=words.basis,
            severity=words.severity,
            subject_kind=kind,
            subject_id=name,
            subject_label=name,
            detected_at=instant(change.fired + 1),
            onset_at=instant(change.onset.median),
            onset_low_at=instant(change.onset.low),
            onset_high_at=instant(change.onset.high),
            harmful=words.harmful,
            trace_count=int(words.payload["traces"]),
            metric=words.metric,
            call_site_id=site_of(bucket.subject),
            current_value=words.current,
            baseline_value=words.baseline,
            delta=None if words.current is None or words.baseline is None else words.current - words.baseline,
            reference=bucket.reference,
            payload=words.payload,
            # Never before what an earlier look saw, else its end would be taken for old news.
            seen_at=instant(end if change.known is None else max(change.known, end)),
            recurrences=change.recurrences,
            recovered_at=None if change.recovered is None else instant(change.recovered),
        )

    async def _note(
        self, scope: Scope, bucket: Watched, change: Change, words: Told, misfits: frozenset[str] | None
    ) -> Firing | None:
        """The firing for a finding that opens or is raised, about the trace that showed it last."""
        trace_id = await self.stores.traces.newest(
            scope.project_id,
            bucket,
            change.onset.low,
            change.last_fired + 1,
            failing=change.now is not None,
            details=misfits,
        )
        if trace_id is None:
            return None
        band = severity.band(words.severity, harmful=words.harmful)
        return Firing(
            classifier_id=self.detector.name,
            severity="low" if band == "info" else band,
            confidence="high" if change.confirmed else "medium",
            subject_kind="trace",
            summary=words.title,
            trace_id=trace_id,
            call_site_id=site_of(bucket.subject),
            at=instant(change.last_fired + 1),
        )

    async def _gather(
        self, scope: Scope, bucket: Watched, change: Change, finding_id: UUID, misfits: frozenset[str] | None
    ) -> None:
        near: tuple[int, ...] = ()
        if change.shown is not None:
            # Quantiles are in units of the axis.
            near = tuple(bin_of(value, 1.0) for value in (change.shown.p50, change.shown.p95))
        want = Gather(
            finding_id=finding_id,
            bucket=bucket,
            first=change.onset.median,
            end=_end(change, scope.work.until),
            baseline=None
            if change.usual is None
            else (max(change.usual.first, change.usual.end - BASELINE_SLOTS), change.usual.end),
            details=misfits,
            near=near,
        )
        for _ in range(PAGES):
            if not await self.stores.evidence.gather(scope.project_id, want):
                return


def _noted(scope: Scope, change: Change, words: Told) -> bool:
    """Whether the finding that lives was noted as often: to look for a trace takes long."""
    return any(
        finding.cause == words.cause
        and finding.recovered_at is None
        and finding.recurrences >= change.recurrences
        for finding in scope.live
    )


def _end(change: Change, until: int) -> int:
    """Until when a change was seen: its recovery, if it recovered."""
    return until if change.recovered is None else change.recovered


def _dollars(bucket: Watched, change: Change) -> float:
    """What a day costs more, by the medians."""
    if bucket.measure != "turn_cost" or change.shown is None or change.direction == "down":
        return 0.0
    dollars = (change.shown.p50 - change.shown.usual_p50) * UNIT_DOLLARS
    days = max((_end(change, change.last_fired + 1) - change.onset.median) / SLOTS_PER_DAY, 0.25)
    return dollars * change.shown.rows / min(days, 7.0)


def _rule(bucket: Watched, change: Change, spread: Breadth, end: int, dollars_a_day: float) -> dict[str, Any]:
    """What the rule weighs, as `detect.findings.case_rules.Evidence` has it."""
    usual = change.usual
    return {
        "harmful": is_harmful(bucket.measure, change.direction),
        "rarer": change.confirmed,
        "slots": spread.slots,
        "traces": spread.traces,
        "sessions": spread.sessions,
        "reference": [0, 0] if usual is None else [usual.first, usual.end],
        "blocks": 0 if usual is None else usual.blocks,
        "seen_at": end - 1,
        "rate": None if change.was is None or change.now is None else [change.was.rate, change.now.rate],
        "ratio": _ratio(bucket, change),
        "dollars_a_day": dollars_a_day,
    }


def _ratio(bucket: Watched, change: Change) -> float | None:
    """How many times the usual size; of one whose fall does harm, how many times smaller."""
    if change.shown is None:
        return None
    if change.direction == "down" and is_harmful(bucket.measure, "down"):
        return 1 / change.shown.ratio
    return max(change.shown.ratio, _tail_ratio(change))


def _tail_ratio(change: Change) -> float:
    sizes = change.shown
    return 0.0 if sizes is None or not sizes.usual_p95 else sizes.p95 / sizes.usual_p95
