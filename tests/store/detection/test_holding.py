"""What a killed process held is free for the next one, where that is the only one."""

from __future__ import annotations

from datetime import timedelta

from svc.domain.detect.detectors.table import DETECTORS
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.detection.holding import give_up_all
from svc.store.detection.judging.due import DueStore
from svc.store.detection.rca.reports import RcaStore
from svc.store.postgres.database import Database
from tests.store.detection.counting.test_tallying import PROJECT, begin, settle, story, write
from tests.store.detection.detecting import RULE, execute, opened, seen
from tests.store.spans.test_writing import NOW


async def test_what_a_killed_process_held_is_free_at_once_and_reports_of_agents_stay_theirs(
    store: Database,
) -> None:
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    detector = next(iter(DETECTORS))
    killed = DueStore(store)
    assert await killed.take(PROJECT, detector) is not None
    await execute(
        store,
        "insert into fold_state as s (project_id, holder, held_until)"
        " values ($1, gen_random_uuid(), now() + interval '1 hour') on conflict (project_id)"
        " do update set holder = excluded.holder, held_until = excluded.held_until",
        PROJECT,
    )
    reports = RcaStore(store)
    case = await opened(store, seen())
    for engine in ("rule", "agent"):
        await reports.start(PROJECT, case.id, by=RULE, now=NOW, engine=engine)
        assert await reports.claim(NOW, engine=engine) is not None

    assert await DueStore(store).take(PROJECT, detector) is None
    assert not (await PostgresTallyQueue(store).tally(PROJECT)).held
    assert await reports.claim(NOW) is None
    await give_up_all(store)
    assert await DueStore(store).take(PROJECT, detector) is not None
    assert (await PostgresTallyQueue(store).tally(PROJECT)).traces == 1
    assert await reports.claim(NOW) is not None
    assert await reports.claim(NOW + timedelta(seconds=1), engine="agent") is None
