"""A REST API over a database of the test's own; a room that needs another replica says so itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime

import pytest

from svc.runtime.clock import now
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from tests.front.people import Browser, Replica, replica


@pytest.fixture
def api_clock() -> Callable[[], datetime]:
    """The clock that the replica goes by."""
    return now


@pytest.fixture
async def api(store: Database, api_clock: Callable[[], datetime]) -> AsyncIterator[Replica]:
    """A replica with the settings of every test."""
    async with replica(store, clock=api_clock) as served:
        yield served


@pytest.fixture
async def owner(api: Replica) -> Browser:
    """The first account, signed in, beside the project 1."""
    browser = await api.owner()
    project = await ProjectStore(api.database).make_default()
    assert project is not None
    assert project.id == 1
    return browser
