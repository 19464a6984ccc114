"""A finding that an agent is asked to judge, in a data folder beside the service on it, for browser tests.

`python -m tests.store.agents.planted FOLDER` plants one in the default project, and presses.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.accounts.projects import ProjectStore
from svc.store.agents.runs import PostgresRunStore
from tests.store.detection.detecting import ANN, fire, seen


async def main(folder: Path) -> None:
    """Plant and press."""
    async with open_store(read_settings({"SVC_DATA_DIR": str(folder)})) as store:
        project = await ProjectStore(store.database).make_default()
        assert project is not None
        now = datetime.now(UTC)
        finding = await fire(store.database, seen(detected_at=now, onset_at=now), project_id=project.id)
        await PostgresRunStore(store.database).press(project.id, "triage", finding, ANN, now)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
