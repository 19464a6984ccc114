"""Laws of the case keeper at rest: what stands as it stood costs nothing, and no change is missed."""

from __future__ import annotations

import attrs
import pytest

from protocol.detection import EvidenceRole
from protocol.storage import Outage
from svc.detecting import case_keeper
from svc.store.detection.cases.casework import CaseworkStore
from svc.store.postgres.database import Database
from tests.detecting.house import execute
from tests.detecting.story import MONDAY, Story
from tests.detecting.test_judging import DAY, PAY, rested


@attrs.define(eq=False)
class Noted(CaseworkStore):
    """Notes what is read and changed of single findings and cases."""

    noted: list[str] = attrs.field(factory=list)

    async def traces(self, project_id: int, finding_id: object, role: EvidenceRole) -> frozenset[bytes]:
        self.noted.append("traces")
        return await CaseworkStore.traces(self, project_id, finding_id, role)  # type: ignore[arg-type]

    async def lead(self, project_id: int, case_id: object, finding_id: object) -> None:
        self.noted.append("lead")
        await CaseworkStore.lead(self, project_id, case_id, finding_id)  # type: ignore[arg-type]


async def test_findings_are_seen_to_when_they_change_and_after_a_while(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await rested(store, Story(faults=(PAY,)), until=MONDAY + 21 * DAY)
    await house.look()
    keeper, work = house.keeper(), Noted(store)
    keeper.work = work
    await keeper.round()
    # Its case is led by it already.
    assert work.noted == ["traces"]
    await keeper.round()
    await keeper.round()
    assert work.noted == ["traces"], "what stands as it stood is seen to again"
    for change in (
        "update finding set last_seen_at = last_seen_at + interval '1 hour'",
        "update detection_case set state = 'muted', muted_at = now()",
        "update case_finding set explained_share = 0.5",
    ):
        work.noted.clear()
        await execute(store, change)
        await keeper.round()
        assert work.noted == ["traces"], change
        await keeper.round()
    work.noted.clear()
    monkeypatch.setattr(case_keeper, "SETTLED_FOR_S", 0.0)
    await execute(store, "update finding set last_seen_at = last_seen_at + interval '1 hour'")
    await keeper.round()
    await keeper.round()
    assert work.noted == ["traces", "traces"], "late traces would be missed for ever"


async def test_a_round_that_fails_is_done_again(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    house = await rested(store, Story(faults=(PAY,)), until=MONDAY + 21 * DAY)
    await house.look()
    keeper, work = house.keeper(), Noted(store)
    keeper.work = work

    async def fail(*_: object) -> None:
        raise Outage("the database is away")

    with monkeypatch.context() as broken:
        broken.setattr(case_keeper.CaseKeeper, "_group", fail)
        with pytest.raises(Outage):
            await keeper.round()
    await keeper.round()
    assert work.noted == ["traces", "traces"]
