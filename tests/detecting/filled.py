"""A data folder with four weeks of the small application and what detectors say of it, as a service left it.

`python -m tests.detecting.filled FOLDER` fills a folder that a service made and stopped: the story ends an
hour ago, so that pages show it as of now. The browser tests and whoever looks at the pages start from it.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.detecting.analyst import CaseAnalyst, RuleReports
from svc.store.postgres.database import Database
from tests.detecting.house import House, replay
from tests.detecting.story import DAYS, Fault, Story

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"


def stories(now: datetime) -> list[Story]:
    """One outage that is over, one that lasts, a slower model, a leak, and a little that is not sure."""
    start = now.replace(hour=0, minute=0, second=0, microsecond=0) - (DAYS - 1) * DAY
    end = now - start
    return [
        Story(
            start=start,
            faults=(
                Fault("pay failed", 15 * DAY + 9 * HOUR, 17 * DAY, tool="pay", tool_errors=0.35),
                Fault("slower model", end - 5 * DAY, model_slower=1.8),
                Fault("leak", end - 2 * DAY, end - 2 * DAY + 3 * HOUR, secret=SECRET),
                Fault("search fails", end - 20 * HOUR, tool="search", tool_errors=0.4, error_type="HTTP 502"),
            ),
        ),
        Story(
            seed=2,
            start=start + 23 * DAY,
            days=DAYS - 23,
            site="digest",
            faults=(Fault("new tool", timedelta(), tool_errors=0.02),),
        ),
    ]


async def fill(database: Database, now: datetime) -> None:
    """Write the stories, judge them, open the cases, and have each analysed by rule."""
    house = House(database)
    await replay(database, *stories(now), until=now - HOUR)
    await house.rest()
    await house.look()
    await CaseAnalyst(store=RuleReports(database), now=lambda: datetime.now(UTC), counts=Counter()).round()


async def main(tally_updater: Path) -> None:
    """Fill the store of a folder."""
    async with open_store(read_settings({"SVC_DATA_DIR": str(tally_updater)})) as store:
        await fill(store.database, datetime.now(UTC))


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
