"""Dead letters in a data folder, beside the service that runs on it, for tests in a browser.

`python -m tests.store.spans.buried FOLDER PROJECT` buries three letters of one reason and one of another in
the project of that slug.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import trio

from protocol.storage import Letter
from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.spans.dead_letters import DeadLetterStore
from tests.store.spans.test_writing import one
from tests.wire import request


async def main(folder: Path, slug: str) -> None:
    """Bury them."""
    async with open_store(read_settings({"SVC_DATA_DIR": str(folder)})) as store:
        found = await store.database.fetch("select id from project where slug = $1", slug)
        moment = datetime.now(UTC)
        await DeadLetterStore(store.database).bury(
            [
                Letter(
                    found[0]["id"],
                    "numeric field overflow" if number else "invalid byte sequence",
                    request(
                        one(number + 1, name=f"ask {number}"), resource={"service.name": "shop"}
                    ).SerializeToString(),
                    moment,
                    1,
                )
                for number in range(4)
            ]
        )


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2])
