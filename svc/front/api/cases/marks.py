"""`{p}/marks`: which facts are stated of a project's traces, and of which a rise is reported.

The detector `marks` as a whole is switched with the other detectors (`classifiers`).
"""

from __future__ import annotations

from typing import Final

from protocol.refusals import BAD_REQUEST, NO_SUCH_MARK, Refused
from protocol.rest.marks import MarkChange, MarkShown
from svc.domain.marks.table import MARKS, MarkName
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.detection.judging.mark_settings import MarkSetting, MarkSettingStore

_MARKS: Final = PROJECT + "/marks"


async def get_marks(call: Call[None]) -> list[MarkShown]:
    """Every mark, and how it is set."""
    settings = await MarkSettingStore(call.means.questions).of(call.project.id)
    return [_view(name, setting) for name, setting in settings.items()]


async def put_mark(call: Call[MarkChange]) -> MarkShown:
    """State a mark or not, report a rise of it or not; what is absent stays as it is."""
    name = _mark(call)
    if call.body.enabled is None and call.body.muted is None:
        raise Refused(BAD_REQUEST.saying("name 'enabled', 'muted' or both"))
    store = MarkSettingStore(call.means.database)
    setting = await store.set(
        call.project.id,
        name,
        enabled=call.body.enabled,
        muted=call.body.muted,
        actor=call.caller.label,
    )
    return _view(name, setting)


def _mark(call: Call[object]) -> MarkName:
    for name in MARKS:
        if name == call.path["mark"]:
            return name
    raise Refused(NO_SUCH_MARK)


def _view(name: MarkName, setting: MarkSetting) -> MarkShown:
    kind = MARKS[name]
    return MarkShown(name, kind.label, kind.sentence, kind.precision, setting.enabled, setting.muted)


ROUTES: Final = (
    Route("GET", _MARKS, "ORG_VIEW", get_marks, list[MarkShown]),
    Route(
        "PUT", _MARKS + "/{mark}", "ORG_MANAGE", put_mark, MarkShown, body=MarkChange,
        refusals=(NO_SUCH_MARK,),
    ),
)  # fmt: skip
