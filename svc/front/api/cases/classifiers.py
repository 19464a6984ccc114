"""`{p}/classifiers`: which detectors watch a project, how they are set and how they are doing.

What they fired and measured is served beside this (`classifier_reads`, `buckets`). A detector that cannot run
in this install is listed with the reason, and nothing is answered of it that would read as "found nothing".
"""

from __future__ import annotations

from typing import Final

from protocol.refusals import DETECTOR_UNAVAILABLE, NO_SUCH_DETECTOR, NOT_TUNABLE, Refusal, Refused
from protocol.rest.classifiers import (
    CallSitesChange,
    CallSitesShown,
    ClassifierHealth,
    ClassifiersHealth,
    ClassifierShown,
    EnabledChange,
    ModeChange,
    TunableShown,
    TuningChange,
    TuningShown,
)
from protocol.rest.query import timestamp, timestamp_or_none
from svc.domain.detect.detectors.base import Detector
from svc.domain.detect.detectors.table import DETECTORS, lacking
from svc.domain.detect.findings.finding_text import instant
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.detection.judging.bucket_reports import BucketReports
from svc.store.detection.judging.detector_health import DetectorHealth, DetectorHealthStore
from svc.store.detection.judging.detector_settings import DetectorSetting, DetectorSettingStore

CLASSIFIERS: Final = PROJECT + "/classifiers"
CLASSIFIER: Final = CLASSIFIERS + "/{classifierId}"


def asked(call: Call[object]) -> Detector:
    """The detector of the path. Raises `Refused`."""
    detector = DETECTORS.get(call.path["classifierId"])
    if detector is None:
        raise Refused(NO_SUCH_DETECTOR)
    return detector


def running(call: Call[object]) -> Detector:
    """The detector of the path, if it can run here. Raises `Refused`."""
    detector = asked(call)
    if (reason := lacking(detector, call.means.installed)) is not None:
        raise Refused(DETECTOR_UNAVAILABLE.saying(DETECTOR_UNAVAILABLE.message.format(reason=reason)))
    return detector


def _classifier_view(call: Call[object], detector: Detector, setting: DetectorSetting) -> ClassifierShown:
    reason = lacking(detector, call.means.installed)
    return ClassifierShown(
        id=detector.name,
        description=detector.sentence,
        grain=detector.grain,
        engine=detector.engine,
        measures=list(detector.measures),
        state="unavailable" if reason is not None else "running" if setting.enabled else "disabled",
        reason=reason,
        enabled=setting.enabled,
        mode=setting.mode,
        tuning=dict(setting.tuning),
        tunables=_tunables(detector),
    )


def _tunables(detector: Detector) -> dict[str, TunableShown]:
    return {
        name: TunableShown(tunable.default, tunable.low, tunable.high)
        for name, tunable in detector.tuning.items()
    }


async def get_classifiers(call: Call[None]) -> list[ClassifierShown]:
    """Every detector, whether it runs here, and how it is set."""
    settings = await DetectorSettingStore(call.means.questions).of(call.project.id)
    return [_classifier_view(call, detector, settings[name]) for name, detector in DETECTORS.items()]


async def get_classifier(call: Call[None]) -> ClassifierShown:
    """One detector, whether it runs here, and how it is set."""
    detector = asked(call)
    settings = await DetectorSettingStore(call.means.questions).of(call.project.id)
    return _classifier_view(call, detector, settings[detector.name])


async def get_health(call: Call[None]) -> ClassifiersHealth:
    """How detection is doing: what waits to be counted, and how far and how well each detector judged."""
    health = await DetectorHealthStore(call.means.questions).of(call.project.id, call.means.now())
    settings = await DetectorSettingStore(call.means.questions).of(call.project.id)
    rows = []
    for name, detector in DETECTORS.items():
        detector_health = health.detectors.get(name, DetectorHealth())
        classifier = _classifier_view(call, detector, settings[name])
        rows.append(
            ClassifierHealth(
                id=name,
                state="failing"
                if detector_health.failing and classifier.state == "running"
                else classifier.state,
                reason=classifier.reason,
                buckets=detector_health.buckets,
                live_findings=detector_health.live_findings,
                events_last_day=detector_health.events,
                last_event_at=timestamp_or_none(detector_health.last_event_at),
                judged_at=timestamp_or_none(detector_health.judged_at),
                judged_until=_slot(detector_health.until_slot),
            )
        )
    return ClassifiersHealth(health.waiting, _slot(health.newest_slot), rows)


def _slot(slot: int | None) -> str | None:
    return None if slot is None else timestamp(instant(slot))


async def put_enabled(call: Call[EnabledChange]) -> ClassifierShown:
    """Let a detector run in the project, or keep it from running."""
    detector = running(call) if call.body.enabled else asked(call)
    store = DetectorSettingStore(call.means.database)
    setting = await store.set_enabled(call.project.id, detector.name, call.body.enabled, call.caller.label)
    return _classifier_view(call, detector, setting)


async def put_mode(call: Call[ModeChange]) -> ClassifierShown:
    """Say which firings of a detector are shown: all of them, or those that are sure."""
    detector = asked(call)
    store = DetectorSettingStore(call.means.database)
    setting = await store.set_mode(call.project.id, detector.name, call.body.mode, call.caller.label)
    return _classifier_view(call, detector, setting)


async def get_call_sites(call: Call[None]) -> CallSitesShown:
    """What the project's detectors take for a call site."""
    return CallSitesShown(await DetectorSettingStore(call.means.questions).site_grain(call.project.id))


async def put_call_sites(call: Call[CallSitesChange]) -> CallSitesShown:
    """Tell agents that share a call site apart, or no more."""
    store = DetectorSettingStore(call.means.database)
    parted = call.body.by_agent
    return CallSitesShown(await store.part_by_agent(call.project.id, parted, call.caller.label))


async def get_tuning(call: Call[None]) -> TuningShown:
    """How a detector is tuned, and how many false alarms a month its buckets may raise."""
    detector = asked(call)
    settings = await DetectorSettingStore(call.means.questions).of(call.project.id)
    return await _tuning(call, detector, settings[detector.name])


async def put_tuning(call: Call[TuningChange]) -> TuningShown:
    """Replace the tuning of a detector; values out of bounds are brought to them."""
    detector = asked(call)
    check_tunables(detector, call.body.tuning)
    store = DetectorSettingStore(call.means.database)
    setting = await store.set_tuning(call.project.id, detector.name, call.body.tuning, call.caller.label)
    return await _tuning(call, detector, setting)


def check_tunables(detector: Detector, tuning: dict[str, float]) -> None:
    """Raises `Refused` for a name that the detector does not have."""
    for name in tuning:
        if name not in detector.tuning:
            names = ", ".join(sorted(detector.tuning)) or "none"
            raise Refused(NOT_TUNABLE.saying(NOT_TUNABLE.message.format(name=name[:80], names=names)))


async def _tuning(call: Call[object], detector: Detector, setting: DetectorSetting) -> TuningShown:
    implied: float | None = None
    if detector.engine != "event":
        # In events there is no chance.
        implied = await BucketReports(call.means.questions).implied(
            call.project.id,
            detector.name,
            setting.tuning,
            false_alarms_per_month=call.means.false_alarms_per_month,
        )
    return TuningShown(dict(setting.tuning), _tunables(detector), implied)


_UNAVAILABLE: Final[tuple[Refusal, ...]] = (NO_SUCH_DETECTOR, DETECTOR_UNAVAILABLE)

ROUTES: Final = (
    Route("GET", CLASSIFIERS, "ORG_VIEW", get_classifiers, list[ClassifierShown]),
    Route("GET", CLASSIFIERS + "/health", "ORG_VIEW", get_health, ClassifiersHealth),
    Route("GET", CLASSIFIERS + "/call-sites", "ORG_VIEW", get_call_sites, CallSitesShown),
    Route(
        "PUT", CLASSIFIERS + "/call-sites", "ORG_MANAGE", put_call_sites, CallSitesShown,
        body=CallSitesChange,
    ),
    Route("GET", CLASSIFIER, "ORG_VIEW", get_classifier, ClassifierShown, refusals=(NO_SUCH_DETECTOR,)),
    Route(
        "PUT", CLASSIFIER + "/enabled", "ORG_MANAGE", put_enabled, ClassifierShown, body=EnabledChange,
        refusals=_UNAVAILABLE,
    ),
    Route(
        "PUT", CLASSIFIER + "/mode", "ORG_MANAGE", put_mode, ClassifierShown, body=ModeChange,
        refusals=(NO_SUCH_DETECTOR,),
    ),
    Route("GET", CLASSIFIER + "/tuning", "ORG_VIEW", get_tuning, TuningShown, refusals=(NO_SUCH_DETECTOR,)),
    Route(
        "PUT", CLASSIFIER + "/tuning", "ORG_MANAGE", put_tuning, TuningShown, body=TuningChange,
        refusals=(NO_SUCH_DETECTOR, NOT_TUNABLE),
    ),
)  # fmt: skip
