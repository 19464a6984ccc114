"""Judges of single events: secrets that leak, failures of a new kind, models that answer for others.

Owns what each of the three makes of the traces behind a subject. Nothing is kept of a subject but how far it
was looked at: each look reads the traces again and tells the same findings. Secrets: what is told of one is
its form, its first characters and its length, as tallying wrote them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import attrs

from protocol.detection import Cause, Detection, Firing, Ref, Sight
from svc.detecting.detector_runner import DetectorRunner, Scope
from svc.domain.detect.detectors.call_errors import TOOL_ERROR
from svc.domain.detect.detectors.model_change import CHANGED_SHARE, models_of, new_models
from svc.domain.detect.detectors.new_signature import BASELINE_FAILURES, NEW_SHARE, new_since
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, day_start, slot_at
from svc.domain.detect.findings import severity
from svc.domain.detect.findings.bucket import BucketState, Watched
from svc.domain.detect.findings.finding_text import instant, moment, subject_of
from svc.domain.quantities import counted, percent
from svc.store.detection.judging.bucket_states import NEWEST
from svc.store.detection.judging.due import DueBucket, JudgedSubject
from svc.store.detection.judging.judge_evidence import EXEMPLARS, DetectedEvent

#: How sure a form of secret is where it was seen, by the measure it is counted under.
_SECRET_BANDS: Final[Mapping[str, float]] = {"secret_high": severity.SECRET, "secret_low": 0.5}


@attrs.define(eq=False)
class EventJudge(DetectorRunner):
    """Keeps how far a subject was looked at; what was seen there is `seen`'s to tell."""

    async def subject(self, scope: Scope, bucket: Watched, due: Sequence[DueBucket]) -> bool:
        """Look at one subject."""
        if await self.seen(scope, bucket, due):
            return True
        if due:
            state = BucketState(scope.work.until)
            await self.stores.due.settle(
                scope.project_id,
                self.detector.name,
                due,
                scope.work.until,
                JudgedSubject(bucket, state, 0, ()),
            )
        return False

    @abstractmethod
    async def seen(self, scope: Scope, bucket: Watched, due: Sequence[DueBucket]) -> bool:
        """Tell what there is to tell. Whether a finding waits for its case."""

    async def tell(
        self, scope: Scope, detection: Detection, events: Sequence[DetectedEvent], confidence: str
    ) -> tuple[UUID, str]:
        """Tell a finding with the traces that show it, and a firing for each."""
        refs = [Ref("changepoint", trace_id=event.trace_id, span_id=_first(event)) for event in events[:1]]
        exemplars: dict[str | None, DetectedEvent] = {}
        for event in events:
            exemplars.setdefault(event.signature, event)
        for rank, event in enumerate(list(exemplars.values())[:EXEMPLARS], start=1):
            refs.append(Ref("exemplar", trace_id=event.trace_id, span_id=_first(event), rank=rank))
        band = severity.band(detection.severity, harmful=detection.harmful)
        sights = [
            Sight(
                event.trace_id,
                tuple(
                    Ref("witness", trace_id=event.trace_id, span_id=span_id)
                    for span_id in event.spans or (None,)
                ),
                Firing(
                    classifier_id=self.detector.name,
                    severity="low" if band == "info" else band,
                    confidence=confidence,
                    subject_kind="span" if event.spans else "trace",
                    summary=detection.title,
                    trace_id=event.trace_id,
                    span_id=_first(event),
                    call_site_id=detection.call_site_id,
                    at=instant(event.slot + 1),
                ),
            )
            for event in events
        ]
        fired = await self.stores.verbs.fire(scope.project_id, detection, refs, sights=sights)
        return fired.finding_id, fired.did


def _sighted(
    detector: str,
    bucket: Watched,
    key: str,
    *,
    onset_slot: int,
    fired_slot: int,
    last_slot: int,
    current: float,
    **fields: Any,
) -> Detection:
    """What was seen where nothing was before: it began in one known slot; `fields` holds the rest."""
    kind, name = subject_of(bucket)
    payload = {"measure": bucket.measure, "subject": bucket.subject, **fields.pop("payload")}
    return Detection(
        cause=Cause(detector, bucket.measure, key),
        subject_kind=kind,
        subject_id=name,
        subject_label=name,
        detected_at=instant(fired_slot + 1),
        onset_at=instant(onset_slot),
        onset_low_at=instant(onset_slot),
        onset_high_at=instant(onset_slot),
        call_site_id=name if kind == "call_site" else None,
        current_value=current,
        baseline_value=0.0,
        delta=current,
        seen_at=instant(last_slot + 1),
        payload=payload,
        **fields,
    )


def _first(event: DetectedEvent) -> bytes | None:
    return event.spans[0] if event.spans else None


@attrs.define(eq=False)
class SecretJudge(EventJudge):
    """One event is enough: there is no wait for a watermark."""

    async def seen(self, scope: Scope, bucket: Watched, due: Sequence[DueBucket]) -> bool:
        """A finding for each form that a call site says."""
        waits = False
        for form in due:
            events = await self.stores.evidence.events(scope.project_id, [form.id], 0, scope.work.until)
            waits |= await self._form(scope, bucket, form.detail, events)
        return waits

    async def _form(self, scope: Scope, bucket: Watched, form: str, events: Sequence[DetectedEvent]) -> bool:
        while events:
            detection = _secret(self.detector.name, bucket, form, events)
            confidence = "high" if bucket.measure == "secret_high" else "low"
            finding_id, did = await self.tell(scope, detection, events, confidence)
            if did != "closed":
                return did == "waits"
            # What came after the last that a person has seen to is new.
            next_slot = await self.stores.evidence.last_seen(scope.project_id, finding_id)
            later = [event for event in events if event.slot >= next_slot]
            if len(later) == len(events):
                return False
            events = later
        return False


def _secret(detector: str, bucket: Watched, form: str, events: Sequence[DetectedEvent]) -> Detection:
    _, name = subject_of(bucket)
    high = bucket.measure == "secret_high"
    first, last_slot = events[0].slot, events[-1].slot
    traces = len({event.trace_id for event in events})
    signatures = sorted({part for event in events for part in (event.signature or "").split(",") if part})
    secrets = [_masked(part) for part in signatures]
    distinct = len({part.rsplit(":", 1)[-1] for part in signatures})
    leak = "Secret leaked by" if high else "Possible secret passed on by"
    return _sighted(
        detector,
        bucket,
        f"secret:{name}:{form}",
        onset_slot=first,
        fired_slot=first,
        last_slot=last_slot,
        current=float(traces),
        title=f"{leak} `{name}`: {form} ({secrets[0] if secrets else 'unknown'})",
        basis=(
            f"{counted(distinct, 'secret')} of the form {form} in {counted(traces, 'trace')} "
            f"since {moment(first)}; "
            + ("its form leaves no doubt." if high else "its form alone leaves room for doubt.")
        ),
        severity=_SECRET_BANDS[bucket.measure],
        trace_count=traces,
        metric="secrets",
        recurrences=traces - 1,
        payload={
            "form": form,
            "band": "high" if high else "low",
            "secrets": secrets[:8],
            "distinct": distinct,
            **({"confirm": "at_once"} if high else {"withheld": "its form is of the low band"}),
        },
    )


def _masked(signature: str) -> str:
    """What may be shown of a secret: first characters and length."""
    parts = signature.split(":")
    return f"{parts[1]}…, {parts[2]} characters" if len(parts) >= 4 else "unknown"


@attrs.define(eq=False)
class SignatureJudge(EventJudge):
    """A failure of a kind that the tool never had, measured against the reference of its failures."""

    async def seen(self, scope: Scope, bucket: Watched, due: Sequence[DueBucket]) -> bool:
        """A finding for each new kind."""
        project_id, until = scope.project_id, min((bucket.reach for bucket in due), default=0)
        # The current reference: its judge may have moved on since this pass began.
        state = await self.stores.states.before(project_id, TOOL_ERROR.name, bucket, NEWEST)
        if state is None or state.rate is None or (usual := state.rate.reference) is None:
            return False
        evidence, end = self.stores.evidence, usual.end
        began = await self.stores.findings.first_onset(
            project_id, TOOL_ERROR.name, bucket.reference, instant(usual.first), instant(usual.end)
        )
        if began is not None:
            # A reference that was made before and after an outage does not know its kinds of failure.
            end = day_start(slot_at(began.timestamp()))
        usual_kinds = await evidence.signatures(project_id, bucket, usual.first, end, 1_000)
        if sum(kind.traces for kind in usual_kinds) < BASELINE_FAILURES:
            return False
        names = {kind.name for kind in usual_kinds}
        events = await evidence.events(project_id, [due_bucket.id for due_bucket in due], end, until)
        waits = False
        for name in sorted({event.signature for event in events if event.signature} - names):
            waits |= await self._kind(scope, bucket, name, events, until)
        return waits

    async def _kind(
        self, scope: Scope, bucket: Watched, name: str, events: Sequence[DetectedEvent], until: int
    ) -> bool:
        share = scope.tuning.get("share", NEW_SHARE)
        fired = new_since(name, events, share)
        if fired is None:
            return False
        onset_slot, fired_slot = fired
        of_kind = [event for event in events if event.signature == name and event.slot >= onset_slot]
        of_kind = _until_silent(of_kind, events)
        last_slot = of_kind[-1].slot
        is_over = until - last_slot > SLOTS_PER_DAY and any(event.slot > last_slot for event in events)
        _, tool = subject_of(bucket)
        label = name.rpartition(":")[0] or name
        recent = [event for event in events if onset_slot <= event.slot <= last_slot]
        portion = len(of_kind) / max(len(recent), 1)
        detection = _sighted(
            self.detector.name,
            bucket,
            f"signature:{tool}:{name.rpartition(':')[2]}",
            onset_slot=onset_slot,
            fired_slot=fired_slot,
            last_slot=last_slot,
            current=float(len(of_kind)),
            title=f"`{tool}` fails in a new way: {label}",
            basis=f"{counted(len(of_kind), 'trace')} since {moment(onset_slot)}, {percent(portion)} of its "
            "failures since then; none of the failures before were of this kind.",
            severity=severity.of_rate(0.0, portion, 0.0),
            trace_count=len(of_kind),
            metric="traces",
            recovered_at=instant(last_slot + 1) if is_over else None,
            payload={
                "signature": name,
                "share": round(portion, 4),
                "withheld": "a new kind of failure is confirmed together with its tool's failures",
                "with": TOOL_ERROR.name,
            },
        )
        _, did = await self.tell(scope, detection, of_kind, "high")
        return did == "waits"


def _until_silent(of_kind: Sequence[DetectedEvent], events: Sequence[DetectedEvent]) -> list[DetectedEvent]:
    """The events of a kind up to the first day without one in which the tool failed otherwise: judged as they
    come, the kind is over then.
    """
    slots = [event.slot for event in events]
    for place, (event, later) in enumerate(pairwise(of_kind), 1):
        if later.slot - event.slot > SLOTS_PER_DAY and any(event.slot < slot < later.slot for slot in slots):
            return list(of_kind[:place])
    return list(of_kind)


@attrs.define(eq=False)
class ModelJudge(EventJudge):
    """Another model answers though the same one is asked for: information, and a mark on every chart."""

    async def seen(self, scope: Scope, bucket: Watched, due: Sequence[DueBucket]) -> bool:
        """A finding for each answer that a model never had."""
        counts = await self.stores.evidence.details(scope.project_id, bucket, 0, scope.work.until)
        by_asked: dict[str, dict[str, list[tuple[int, int]]]] = {}
        for models, rows in counts.items():
            pair = models_of(models)
            if pair is not None:
                slots = list(zip(rows.slots.tolist(), rows.units.tolist(), strict=True))
                by_asked.setdefault(pair[0], {})[pair[1]] = slots
        waits = False
        share = scope.tuning.get("share", CHANGED_SHARE)
        for requested, answers in sorted(by_asked.items()):
            for answered, onset_slot, fired_slot, portion in new_models(answers, share):
                detection = _model(
                    self.detector.name, bucket, requested, answered, onset_slot, fired_slot, portion
                )
                _, did = await self.tell(scope, detection, (), "high")
                waits |= did == "waits"
        return waits


def _model(
    detector: str,
    bucket: Watched,
    requested: str,
    answered: str,
    onset_slot: int,
    fired_slot: int,
    portion: float,
) -> Detection:
    _, name = subject_of(bucket)
    return _sighted(
        detector,
        bucket,
        f"model:{name}:{requested}:{answered}",
        onset_slot=onset_slot,
        fired_slot=fired_slot,
        last_slot=fired_slot,
        current=portion,
        title=f"`{name}` gets answers from {answered} although it asks for {requested}",
        basis=f"Since {moment(onset_slot)} {percent(portion)} of the calls that ask for {requested} are "
        f"answered by {answered}, which never answered them before.",
        severity=severity.of_rate(0.0, portion, 0.0),
        harmful=False,
        metric="share",
        payload={
            "asked": requested,
            "answered": answered,
            "share": round(portion, 4),
            "withheld": "a change of model is a mark, not a fault",
        },
    )
