"""What these tests write is taken out again; what they ask of a database, one that was used gives as well."""

from __future__ import annotations

import pytest

from svc.store.postgres.database import Database


@pytest.fixture
def store(reused_store: Database) -> Database:
    """A migrated database without rows."""
    return reused_store
