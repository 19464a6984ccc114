"""`DELETE {p}/traces/{id}`, `{p}/sessions/{id}`, `{p}/users/{id}` and `{p}/erasures`: what is erased for
good.

An erasure is noted and answered at once (202); the service does it in portions
(`svc.store.retention.erasing`). What is on its way may have the id too, so an id that nothing has is no
fault.

Secrets: ids of sessions and users are in no answer and no log.
"""

from __future__ import annotations

import re
from typing import Any, Final

from protocol.refusals import BAD_REQUEST, NO_SUCH_ERASURE, TOO_MANY_ERASURES, Refusal
from protocol.rest.erasures import SUBJECT_MAX, ErasureList, ErasureRequest, ErasureShown
from protocol.rest.query import timestamp, timestamp_or_none
from protocol.storage import Erasable
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.retention.erasures import Erasure, ErasureStore

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")


async def delete_trace(call: Call[None]) -> ErasureShown | Refusal:
    """Erase a trace for good, with everything that is kept of it."""
    return await _ask(call, "trace", call.path["traceId"])


async def delete_session(call: Call[None]) -> ErasureShown | Refusal:
    """Erase a session for good, with all of its traces."""
    return await _ask(call, "session", call.path["sessionId"])


async def delete_user(call: Call[None]) -> ErasureShown | Refusal:
    """Erase all data of a user for good: every trace in which they are named."""
    return await _ask(call, "user", call.path["userId"])


async def post_erasure(call: Call[ErasureRequest]) -> ErasureShown | Refusal:
    """Erase a trace, a session or a user's data for good; for ids that a path cannot hold."""
    return await _ask(call, call.body.kind, call.body.id)


async def get_erasures(call: Call[None]) -> ErasureList:
    """The newest erasures, and how far each is."""
    return ErasureList([_shown(e) for e in await ErasureStore(call.means.database).recent(call.project.id)])


async def get_erasure(call: Call[None]) -> ErasureShown | Refusal:
    """One erasure, and how far it is."""
    erasure_id = call.id_of("erasureId", NO_SUCH_ERASURE)
    erasure = await ErasureStore(call.means.database).one(call.project.id, erasure_id)
    return NO_SUCH_ERASURE if erasure is None else _shown(erasure)


async def _ask(call: Call[Any], kind: Erasable, subject: str) -> ErasureShown | Refusal:
    if kind == "trace":
        subject = subject.lower()
        if not _TRACE_ID.fullmatch(subject):
            return BAD_REQUEST.saying("a trace is named by 32 hexadecimal digits")
    if not 1 <= len(subject) <= SUBJECT_MAX or "\0" in subject:
        return BAD_REQUEST.saying(f"this is no id of a {kind}")
    erasure = await ErasureStore(call.means.database).ask(
        call.project.id, kind, subject, actor=call.caller.label, now=call.means.now()
    )
    return TOO_MANY_ERASURES if erasure is None else _shown(erasure)


def _shown(erasure: Erasure) -> ErasureShown:
    return ErasureShown(
        str(erasure.id),
        erasure.kind,
        erasure.digest.hex(),
        erasure.asked_by,
        timestamp(erasure.asked_at),
        erasure.phase,
        dict(erasure.counts),
        timestamp_or_none(erasure.finished_at),
    )


ROUTES: Final = (
    Route(
        "DELETE", PROJECT + "/traces/{traceId}", "ORG_MANAGE", delete_trace, ErasureShown, status=202,
        refusals=(TOO_MANY_ERASURES,),
    ),
    Route(
        "DELETE", PROJECT + "/sessions/{sessionId}", "ORG_MANAGE", delete_session, ErasureShown, status=202,
        refusals=(TOO_MANY_ERASURES,),
    ),
    Route(
        "DELETE", PROJECT + "/users/{userId}", "ORG_MANAGE", delete_user, ErasureShown, status=202,
        refusals=(TOO_MANY_ERASURES,),
    ),
    Route("GET", PROJECT + "/erasures", "ORG_VIEW", get_erasures, ErasureList),
    Route(
        "POST", PROJECT + "/erasures", "ORG_MANAGE", post_erasure, ErasureShown, body=ErasureRequest,
        status=202, refusals=(TOO_MANY_ERASURES,),
    ),
    Route(
        "GET", PROJECT + "/erasures/{erasureId}", "ORG_VIEW", get_erasure, ErasureShown,
        refusals=(NO_SUCH_ERASURE,),
    ),
)  # fmt: skip
