"""A replica that serves pages, and its first account; a room that needs another replica says so itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from svc.store.postgres.database import Database
from tests.front.people import Replica, replica
from tests.web.visitor import Visitor


@pytest.fixture
async def here(store: Database) -> AsyncIterator[Replica]:
    """Pages over a database of the test's own."""
    async with replica(store) as found:
        yield found


@pytest.fixture
async def owner(here: Replica) -> Visitor:
    """The first account, signed in."""
    visitor = Visitor.of(here)
    assert (await visitor.sign_up()).status == 303
    return visitor
