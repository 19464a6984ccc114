"""`{p}/reconcile`: a provider's usage export beside what was traced. Keeps nothing of it.

Reading a file takes CPU time that grows with it: in a thread, one bill at a time in a process. The page
(`svc.web.settings.reconcile`) calls this handler too.

Secrets: a bill may name people and keys; nothing of it is logged.
"""

from __future__ import annotations

from typing import Final

import trio

from protocol.refusals import BAD_REQUEST, BILL_COMPARED, BILL_TOO_WIDE, Refusal
from protocol.rest.bills import BillReconciled, BillSent
from svc.domain.billing.exports import read_bill
from svc.domain.billing.rows import NoExport
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.reads.usage.bills import BillReads, TooManyGroups

#: Larger files are for the command line.
BODY_BYTES: Final = 8 * 1024 * 1024
_MESSAGE_CHARS: Final = 500

_comparing: Final = trio.CapacityLimiter(1)
_readers: Final = trio.CapacityLimiter(1)


async def post_reconcile(call: Call[BillSent]) -> BillReconciled | Refusal:
    """Compare a provider's usage export with what was traced, by day and model; nothing is kept."""
    try:
        _comparing.acquire_nowait()
    except trio.WouldBlock:
        return BILL_COMPARED
    try:
        bill = await trio.to_thread.run_sync(read_bill, call.body.text, limiter=_readers)
        return await BillReads(call.means.questions).reconciled(call.project.id, bill)
    except NoExport as error:
        return BAD_REQUEST.saying(str(error)[:_MESSAGE_CHARS])
    except TooManyGroups:
        return BILL_TOO_WIDE
    finally:
        _comparing.release()


ROUTES: Final = (
    Route(
        "POST",
        PROJECT + "/reconcile",
        "ORG_VIEW",
        post_reconcile,
        BillReconciled,
        body=BillSent,
        refusals=(BILL_COMPARED, BILL_TOO_WIDE),
        body_bytes=BODY_BYTES,
    ),
)
