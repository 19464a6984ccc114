"""Here the database itself is the matter: each test has one that no other has used."""

from __future__ import annotations

import pytest

from svc.store.postgres.database import Database


@pytest.fixture
def store(fresh_store: Database) -> Database:
    """A migrated database of its own."""
    return fresh_store
