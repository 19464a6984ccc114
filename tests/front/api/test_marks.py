"""Laws of `{p}/marks`: each mark is switched and muted by itself, and who did stands in the audit."""

from __future__ import annotations

from protocol.rest.marks import MarkShown
from svc.domain.marks.table import MARK_NAMES
from svc.store.accounts.projects import ProjectStore
from tests.front.api.test_cases import documented
from tests.front.people import PROJECT, Replica
from tests.store.spans.test_writing import fetch

MARKS = PROJECT + "/marks"


async def test_a_mark_is_switched_and_muted_by_itself_and_the_audit_says_by_whom(api: Replica) -> None:
    owner = await api.owner()
    assert await ProjectStore(api.database).make_default()
    rows = (await owner.get(MARKS)).data
    documented(rows, list[MarkShown])
    assert [row["name"] for row in rows] == list(MARK_NAMES)
    assert all(row["enabled"] and not row["muted"] for row in rows)
    path = f"{MARKS}/{MARK_NAMES[0]}"
    muted = (await owner.put(path, {"muted": True})).data
    assert (muted["enabled"], muted["muted"]) == (True, True)
    off = (await owner.put(path, {"enabled": False})).data
    assert (off["enabled"], off["muted"]) == (False, True)
    assert (await owner.get(MARKS)).data == [off, *rows[1:]]
    audit = await fetch(api.database, "select actor, subject_id, details::text from audit_row"
                        " where action = 'mark.update' order by id")  # fmt: skip
    assert [tuple(row) for row in audit] == [
        ("owner@example.org", MARK_NAMES[0], '{"muted": true}'),
        ("owner@example.org", MARK_NAMES[0], '{"enabled": false}'),
    ]


async def test_what_is_no_mark_and_a_body_that_says_nothing_are_refused(api: Replica) -> None:
    owner = await api.owner()
    assert await ProjectStore(api.database).make_default()
    assert (await owner.put(f"{MARKS}/unheard_of", {"muted": True})).refused[:2] == (404, "NOT_FOUND")
    for body in ({}, {"muted": "yes"}, {"enabled": True, "mode": "x"}):
        assert (await owner.put(f"{MARKS}/{MARK_NAMES[0]}", body)).refused[0] == 400, body
