"""The eraser: every project to the end, notes first, and tombstones looked after now and then."""

from __future__ import annotations

from datetime import UTC, datetime

import trio
from trio.testing import MockClock

from actors.eraser import ROUND_S, TIDY_S, Eraser
from actors.supervision import Vitals

NOW = datetime(2026, 11, 20, tzinfo=UTC)


class Store:
    """Projects with so many steps to make."""

    def __init__(self, steps: dict[int, int]) -> None:
        self.steps, self.log = steps, list[str]()

    async def projects(self) -> list[int]:
        return sorted(project for project, steps in self.steps.items() if steps)

    async def step(self, project_id: int) -> object | None:
        if not self.steps[project_id]:
            return None
        self.steps[project_id] -= 1
        self.log.append(f"step of {project_id}")
        return object()

    async def drop_expired(self, now: datetime) -> None:
        self.log.append("tidied")


async def test_every_project_is_worked_off_after_what_it_is_was_written_down(
    autojump_clock: MockClock,
) -> None:
    store = Store({1: 2, 2: 1})

    async def write_down() -> None:
        store.log.append("written down")

    eraser = Eraser(store=store, write_down=write_down, now=lambda: NOW, vitals=Vitals("eraser"))
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: eraser.run(task_status=task_status))
        await trio.sleep(ROUND_S)
        assert store.log == ["written down", "step of 1", "step of 1", "step of 2", "tidied"]
        store.steps[2] = 1
        await trio.sleep(2 * ROUND_S)
        assert store.log[5:] == ["written down", "step of 2"]
        await trio.sleep(TIDY_S)
        assert store.log[7:] == ["tidied"]
        nursery.cancel_scope.cancel()
