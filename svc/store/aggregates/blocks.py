"""The index of three-letter pieces behind text search over spans and tool calls: how a block of it is made.

Owns the table `search_block`, with `svc.store.reads.search`, which reads it. The cube builder calls
`build_blocks` for each hour it builds, in the same transaction, so that blocks are current exactly where the
cubes are; and `renew_blocks` for the hours that an earlier release built, whose blocks lack some texts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from svc.domain.queries.datasets import SPANS, TOOL_CALLS, Dataset
from svc.store.aggregates.closed_hours import HOUR
from svc.store.postgres.database import Connection
from svc.store.postgres.threads import in_thread

#: Rows of a block: looking through one takes 0.3 ms. Blocks of 512 rows took 0.6, made the index an eighth
#: smaller (it is a fortieth of the spans) and were made a tenth faster (measured November 2026).
BLOCK_ROWS: Final = 256
#: Blocks that are stored in one go: those of an hour of 400,000 spans took 32 MB (measured November 2026).
BLOCKS_AT_ONCE: Final = 64
#: Plain prose has some thousand pieces a block, texts full of random identifiers any number.
MOST_GRAMS: Final = 10_000

#: So many more for ids: of a conversation, some dozens; of ids that are new with each span, any number.
MOST_GRAMS_OF_IDS: Final = 4_000

#: Ids that are asked for with the texts. Spans stand for their traces, which are asked for by these as well.
_IDS: Final[dict[str, tuple[str, ...]]] = {SPANS.name: ("session_id", "user_id"), TOOL_CALLS.name: ()}

_COLUMNS: Final = (
    "project_id",
    "dataset",
    "hour",
    "low",
    "high",
    "grams",
    "ids",
    "first_started_at",
    "last_started_at",
    "with_errors",
)
#: Hours with blocks that an earlier release made, without what failed spans said; newest first.
LACKING_ERRORS: Final = (
    "select distinct hour, project_id from search_block where dataset = 'spans' and not with_errors"
    " order by hour desc, project_id limit $1"
)
_GRAM: Final = 3
_STEP: Final = timedelta(microseconds=1)


def grams_of(texts: Iterable[str]) -> set[str]:
    """The three-letter pieces of the words of texts that are in lower case."""
    words: set[str] = set()
    for text in texts:
        words.update(text.split())
    return {word[offset : offset + _GRAM] for word in words for offset in range(len(word) - _GRAM + 1)}


def hashed(project_id: int, dataset: str, grams: Iterable[str]) -> list[int]:
    """The pieces as they are stored: 32 bits of project, dataset and piece."""
    seed = zlib.crc32(f"{project_id} {dataset}".encode())
    hashes = {zlib.crc32(gram.encode("utf-8", "replace"), seed) for gram in grams}
    return sorted(number - 2**32 if number >= 2**31 else number for number in hashes)


def _block(project_id: int, dataset: str, texts: list[str], ids: set[str]) -> tuple[list[int] | None, bool]:
    """The pieces of a block, null when there are too many, and whether those of its ids are among them."""
    grams = grams_of(texts)
    if len(grams) > MOST_GRAMS:
        return None, False
    id_grams = grams_of(ids) - grams
    complete = len(id_grams) <= MOST_GRAMS_OF_IDS
    return hashed(project_id, dataset, grams | id_grams if complete else grams), complete


async def build_blocks(
    connection: Connection, dataset: Dataset, project_id: int, hour: datetime, end: datetime
) -> None:
    """Make the blocks of the hour that ends then, in the transaction that builds its cube."""
    await connection.execute(
        "delete from search_block where project_id = $1 and dataset = $2 and hour = $3",
        project_id,
        dataset.name,
        hour,
    )
    blocks: list[tuple[Any, ...]] = []
    moments: list[datetime] = []
    starts: list[datetime] = []
    texts: list[str] = []
    ids: set[str] = set()

    async def store() -> None:
        await connection.copy_records_to_table("search_block", columns=_COLUMNS, records=blocks)
        blocks.clear()

    async def close() -> None:
        pieces = await in_thread(_block, project_id, dataset.name, texts, ids)
        end = moments[-1] + _STEP
        began = min(starts), max(starts)
        blocks.append((project_id, dataset.name, hour, moments[0], end, *pieces, *began, True))
        for pending in (moments, starts, texts, ids):
            pending.clear()
        if len(blocks) >= BLOCKS_AT_ONCE:
            await store()

    text_columns, id_columns = ", ".join(dataset.searched), ", ".join((*_IDS[dataset.name], "null"))
    # The texts of the hour's rows and their ids, in one string each and in lower case.
    rows = connection.cursor(
        f"select created_at, started_at, lower(concat_ws(' ', {text_columns})) as text,"
        f" lower(concat_ws(' ', {id_columns})) as ids from {dataset.table}"
        " where project_id = $1 and created_at >= $2 and created_at < $3 order by created_at",
        project_id,
        hour,
        end,
        prefetch=BLOCK_ROWS,
    )
    async for row in rows:
        # Never in the middle of a moment: a block's end is the next one's beginning.
        if len(texts) >= BLOCK_ROWS and row["created_at"] != moments[-1]:
            await close()
        moments.append(row["created_at"])
        starts.append(row["started_at"])
        texts.append(row["text"])
        ids.add(row["ids"])
    if texts:
        await close()
    await store()


async def renew_blocks(connection: Connection, project_id: int, hour: datetime) -> bool:
    """Make the blocks of an hour of spans anew, in a transaction; whether they lacked what failures said."""
    lacking = await connection.fetchval(
        "select exists (select from search_block where dataset = 'spans' and not with_errors"
        " and hour = $1 and project_id = $2)",
        *(hour, project_id),
    )
    if lacking:
        await build_blocks(connection, SPANS, project_id, hour, hour + HOUR)
    return bool(lacking)
