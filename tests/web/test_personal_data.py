"""The pages of masking and erasing: what they say, what they ask, and that the forms do it."""

from __future__ import annotations

from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.retention.erasing import Erasing
from svc.store.spans.masking import MaskingStore
from svc.store.spans.traces import PostgresTraceStore
from tests.store.spans.test_writing import PROJECT, TRACE, fetch, one, rows, store_of
from tests.web.test_pages import heading
from tests.web.visitor import BASE, Visitor

ERASING = BASE + "/settings/erasing"
MASKING = BASE + "/settings/masking"
HOSTILE = '"><script>alert(1)</script>'


async def test_an_erasure_is_confirmed_shown_at_work_and_done(owner: Visitor, store: Database) -> None:
    said = {"user.id": "mara", "session.id": "s", "gen_ai.operation.name": "chat"}
    await store_of(store).write(rows(one(1, attributes=said)))
    seen = await owner.get(ERASING)
    assert heading(seen) == "Nothing was erased"
    linked = await owner.get(f"{ERASING}?kind=trace&id={TRACE.hex()}")
    assert "Erase a trace for good?" in linked.text
    assert "Stored of this trace: 1 span." in linked.text
    asking = await owner.post(ERASING, {"kind": "user", "id": " mara "})
    assert "Erase all data of a user for good?" in asking.text
    assert await fetch(store, "select from erasure") == []
    done = await owner.post(ERASING, {"kind": "user", "id": "mara", "sure": "yes"})
    assert done.status == 303
    assert heading(await owner.get(ERASING)) == "1 erasure in progress"
    while await Erasing(store).step(PROJECT) is not None:
        pass
    seen = await owner.get(ERASING)
    assert heading(seen) == "1 erasure, all done"
    assert "mara" not in seen.text
    assert await fetch(store, "select from span") == []


async def test_what_is_no_id_is_said_and_nothing_typed_is_markup(owner: Visitor, store: Database) -> None:
    seen = await owner.post(ERASING, {"kind": "trace", "id": HOSTILE, "sure": "yes"})
    assert seen.status == 400
    assert "32 hexadecimal digits" in seen.text
    assert HOSTILE not in seen.text
    asking = await owner.post(ERASING, {"kind": "session", "id": HOSTILE})
    assert HOSTILE not in asking.text


async def test_a_trace_a_session_and_a_user_lead_there(owner: Visitor, store: Database) -> None:
    said = {"user.id": "mara", "session.id": "s", "gen_ai.operation.name": "chat"}
    await store_of(store).write(rows(one(1, attributes=said)))
    await PostgresTraceStore(store).settle(now(), 10)
    trace = await owner.get(f"{BASE}/traces/{TRACE.hex()}")
    session = await owner.get(f"{BASE}/session?id=s")
    assert f"kind=trace&amp;id={TRACE.hex()}" in trace.text
    user = await owner.get(f"{BASE}/user?id=mara")
    for seen in (trace, session):
        assert "kind=session&amp;id=s" in seen.text
    for seen in (trace, session, user):
        assert "kind=user&amp;id=mara" in seen.text


async def test_masking_is_set_shown_with_its_counts_and_taken_back(owner: Visitor, store: Database) -> None:
    assert heading(await owner.get(MASKING)) == "Texts are stored unchanged"
    form = {"email": "yes", "patterns": "customer KD-[0-9]{6}\n\n"}
    assert (await owner.post(MASKING, form)).status == 303
    await MaskingStore(store).add({(PROJECT, "email"): 1234}, now())
    seen = await owner.get(MASKING)
    assert heading(seen) == "2 kinds of text masked before storing"
    assert "1,234" in seen.text
    assert "customer KD-[0-9]{6}" in seen.text
    bad = await owner.post(MASKING, {"card": "yes", "patterns": f"customer ({HOSTILE}"})
    assert bad.status == 400
    assert HOSTILE not in bad.text
    assert len(await MaskingStore(store).rules(PROJECT)) == 2
    await owner.post(MASKING, {"patterns": ""})
    assert heading(await owner.get(MASKING)) == "Texts are stored unchanged"
