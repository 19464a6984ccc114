"""`trace-svc demo --remove`: takes away what the demo has sent, and says what that was. Called by `demo`."""

from __future__ import annotations

from collections.abc import Sequence

from svc.domain.quantities import counted
from svc.store.accounts.projects import Project
from svc.store.postgres.database import Database
from svc.store.retention.demo_removal import DemoRemoval


async def remove_demo(database: Database, project: Project, services: Sequence[str]) -> None:
    """Take away what the demo sent to a project, and say what that was."""
    counts = await DemoRemoval(database, services).remove(project.id)
    name = f"{project.org_slug}/{project.slug}"
    if not counts["traces"]:
        print(f"nothing of the demo is in {name}")
        return
    parts = ", ".join(counted(counts[unit + "s"], unit) for unit in ("trace", "span", "finding", "case"))
    print(f"removed from {name}: {parts}")
