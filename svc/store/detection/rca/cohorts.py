"""The two cohorts of a finding, read for a root-cause analysis: before and since its onset.

Owns: `CohortStore`. What a trace was tallied as says whether it failed, its size, and most attributes, so
that payloads are opened for a few hundred traces only. Bounded: of each side at most `SCANNED` traces are
looked at, those nearest to the onset, and at most `UNITS` taken, by a hash of their ids, so that the same
question has the same answer. The side before has the hours of the week of the side after, where there were
traces enough. The analyst calls it. Never judges.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from svc.domain.detect.engine.histogram import centres
from svc.domain.detect.engine.slots import BLOCKS, SLOTS_PER_DAY, SLOTS_PER_WINDOW, block_of_week
from svc.domain.quantities import count
from svc.domain.rca.attributes import TELLING, attributes_of_buckets, marks_of
from svc.domain.rca.cohort import Claim, Cohort, Mark, Unit
from svc.store.detection.counting.tallies import unpacked
from svc.store.detection.rca.cohort_question import ALL_HOURS, CaseQuestion, ComparedHours, ask, hours_like
from svc.store.detection.rca.cohort_rows import Facts, facts_of
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

#: Traces of a side that are looked at, that are taken, and of which payloads are opened.
SCANNED: Final = 50_000
UNITS: Final = 5_000
OPENED: Final = 600
#: Traces that one transaction reads facts of, and those of them with payloads.
FACTS: Final = 500
PAYLOADS: Final = 25
#: Units before with which hours are alike enough; with fewer, hours that are less alike are taken too.
ENOUGH: Final = 200
#: Digits of a hash that sampling goes by.
_HASHED: Final = 1 << 28

# The first slot of each of these.
_FIRST: Final = """
select b.id, (select t.slot from tally t where t.project_id = $1 and t.bucket_id = b.id
    order by t.slot limit 1) as slot from unnest($2::bigint[]) as b (id)
"""

#: Blocks of the week, in SQL as `svc.domain.detect.engine.slots` has them.
_BLOCK: Final = f"(slot + {3 * SLOTS_PER_DAY}) / {SLOTS_PER_WINDOW} % {BLOCKS}"

# How far the traces nearest to the onset reach.
_REACH: Final = (
    "select min(slot) as first, max(slot) as last, count(*) as n from (select slot from trace_fold"
    f" where project_id = $1 and slot >= $2 and slot < $3 and {_BLOCK} = any($4::integer[])"
    f" order by slot {{order}} limit {SCANNED}) s"
)

# What they were tallied as, those whose hash is low enough.
_FOLDED: Final = (
    "select slot, trace_id, body from trace_fold where project_id = $1 and slot >= $2 and slot <= $3"
    f" and {_BLOCK} = any($4::integer[])"
    " and ('x' || left(md5(trace_id), 7))::bit(28)::integer < $5"
    f" order by slot, trace_id limit {SCANNED}"
)

# How many units a bucket has there.
_COUNTED: Final = (
    "select coalesce(sum(units), 0)::bigint as units from tally where project_id = $1"
    f" and bucket_id = any($2::bigint[]) and slot >= $3 and slot <= $4 and {_BLOCK} = any($5::integer[])"
)

# The kinds of these failures.
_SIGNATURES: Final = """
select distinct on (trace_id) trace_id, signature from tally_witness where project_id = $1
    and bucket_id = any($2::bigint[]) and slot >= $3 and slot <= $4 and trace_id = any($5::bytea[])
    and signature is not null order by trace_id, slot
"""


@attrs.frozen(eq=False)
class Cohorts:
    """All that a report by rule is made of."""

    claim: Claim
    before: Cohort
    after: Cohort
    marks: Sequence[Mark]


@attrs.define(eq=False)
class CohortStore:
    """Reads. Raises `Outage`."""

    database: Database

    async def of_case(self, project_id: int, case_id: UUID, now: datetime) -> Cohorts | str:
        """The cohorts of a case's finding; a sentence when there is nothing to look at."""
        question = await self.database.run(
            lambda connection: ask(connection, project_id, case_id, now),
            readonly=True,
            snapshot=True,
            timeout_s=READ_TIMEOUT_S,
        )
        if isinstance(question, str):
            return question
        # The later side first: it tells which hours of the week to compare with.
        later, buckets = await self._side(project_id, question, question.after, "asc", ALL_HOURS)
        used_blocks = {int(block_of_week(unit.slot)) for unit in later.units}
        hours = await self._alike(project_id, question, used_blocks)
        earlier, _ = await self._side(project_id, question, question.before, "desc", hours)
        rows = await self.database.fetch(_FIRST, project_id, sorted(buckets), timeout_s=READ_TIMEOUT_S)
        first = {question.names[row["id"]]: row["slot"] for row in rows if row["slot"] is not None}
        return Cohorts(question.claim, earlier, later, marks_of(first))

    async def _alike(self, project_id: int, question: CaseQuestion, used: Collection[int]) -> ComparedHours:
        """The hours most like those of the later side that had traces enough before."""
        first, end = question.before
        for hours in hours_like(used):
            (row,) = await self.database.fetch(
                _COUNTED,
                project_id,
                sorted(question.counted),
                first,
                end - 1,
                hours.blocks,
                timeout_s=READ_TIMEOUT_S,
            )
            if row["units"] >= ENOUGH:
                return hours
        return ALL_HOURS

    async def _side(
        self,
        project_id: int,
        question: CaseQuestion,
        range_: tuple[int, int],
        order: str,
        hours: ComparedHours,
    ) -> tuple[Cohort, set[int]]:
        """One side, and the telling buckets of its call sites."""
        tallied, total, notes = await self.database.run(
            lambda connection: _tallied(connection, project_id, question, range_, order, hours.blocks),
            readonly=True,
            snapshot=True,
            timeout_s=READ_TIMEOUT_S,
        )
        sample = await trio.to_thread.run_sync(_chosen, question, tallied)
        ids = [unit.trace_id for unit, _ in sample]
        failed_ids = [unit.trace_id for unit, _ in sample if unit.failed]
        signatures = {
            row["trace_id"]: row["signature"]
            for row in await self.database.fetch(
                _SIGNATURES,
                project_id,
                sorted(question.counted),
                *range_,
                failed_ids,
                timeout_s=READ_TIMEOUT_S,
            )
        }
        facts = await self._facts(project_id, ids)
        units = [
            _with_facts(question, unit, signatures.get(unit.trace_id), facts[unit.trace_id])
            for unit, _ in sample
            if unit.trace_id in facts
        ]
        telling = {bucket for _, buckets in sample for bucket in buckets}
        sites = {question.names[bucket][:2] for bucket in telling}
        site_buckets = {bucket for bucket, name in question.names.items() if name[:2] in sites}
        if hours.words is not None:
            notes.append(hours.words)
        if question.by_witness is not None:
            notes.append("Of failures only those are known that the finding cites.")
        if len(sample) == UNITS:
            notes.append("A sample by a hash of the trace ids.")
        first, end = range_
        cohort = Cohort(tuple(units), first, end, max(total, len(units)), " ".join(notes) or None)
        return cohort, site_buckets

    async def _facts(self, project_id: int, trace_ids: Sequence[bytes]) -> dict[bytes, Facts]:
        """What rows say of all, and payloads of the first of them by hash."""
        facts: dict[bytes, Facts] = {}
        opened, other_ids = trace_ids[:OPENED], trace_ids[OPENED:]
        steps = [(opened[n : n + PAYLOADS], True) for n in range(0, len(opened), PAYLOADS)]
        steps += [(other_ids[n : n + FACTS], False) for n in range(0, len(other_ids), FACTS)]
        for ids, payloads in steps:
            facts |= await self.database.run(
                lambda connection, ids=ids, payloads=payloads: facts_of(  # type: ignore[misc]
                    connection, project_id, ids, payloads=payloads
                ),
                readonly=True,
                snapshot=True,
                timeout_s=READ_TIMEOUT_S,
            )
        return facts


#: A slot, a trace, and what it was tallied as.
_Row = tuple[int, bytes, bytes]


async def _tallied(
    connection: Connection,
    project_id: int,
    question: CaseQuestion,
    range_: tuple[int, int],
    order: str,
    blocks: list[int],
) -> tuple[list[_Row], int, list[str]]:
    """Rows to choose from, how many units there are where they lie, and what was left out."""
    # The order comes from here.
    reach: Any = await connection.fetchrow(_REACH.format(order=order), project_id, *range_, blocks)
    if not reach["n"]:
        return [], 0, []
    first, last_slot = reach["first"], reach["last"]
    notes = [f"Only the {count(SCANNED)} traces nearest to the onset."] if reach["n"] >= SCANNED else []
    total: int = await connection.fetchval(
        _COUNTED, project_id, sorted(question.counted), first, last_slot, blocks
    )
    # Twice as many as are taken, since a trace may have been counted more than once.
    share = min(2 * UNITS / max(total, 1), 1.0)
    rows = await connection.fetch(_FOLDED, project_id, first, last_slot, blocks, math.ceil(share * _HASHED))
    return [(row["slot"], row["trace_id"], row["body"]) for row in rows], min(total, reach["n"]), notes


def _chosen(question: CaseQuestion, rows: Sequence[_Row]) -> list[tuple[Unit, tuple[int, ...]]]:
    """The units among these rows, by the hash of their ids, each with the telling buckets that count it."""
    sample: list[tuple[Unit, tuple[int, ...]]] = []
    for slot, trace_id, body in sorted(rows, key=_hash):
        entries = unpacked(body)
        own_entries = [entry for entry in entries if entry[0] in question.counted]
        if not own_entries:
            continue
        if question.by_witness is not None:
            failed = trace_id in question.by_witness
        else:
            failed = question.unit is None and any(entry[4] for entry in own_entries)
        telling = tuple(
            entry[0]
            for entry in entries
            if entry[0] in question.names and question.names[entry[0]][0] in TELLING
        )
        size = None
        if question.unit is not None:
            units = sum(entry[3] for entry in own_entries)
            size = question.unit * math.exp(
                sum(centres()[entry[2]] * entry[3] for entry in own_entries) / units
            )
        buckets = [question.names[bucket] for bucket in telling]
        sample.append((Unit(trace_id, slot, failed, size, attributes_of_buckets(buckets)), telling))
        if len(sample) == UNITS:
            break
    return sample


def _hash(row: _Row) -> bytes:
    return hashlib.md5(row[1], usedforsecurity=False).digest()


def _with_facts(question: CaseQuestion, unit: Unit, signature: str | None, facts: Facts) -> Unit:
    failed = unit.failed and (question.signature is None or signature == question.signature)
    if signature is not None and question.secret:
        # Of a secret only its form is shown, never its digest.
        signature = signature.partition(":")[0]
    return attrs.evolve(
        unit,
        failed=failed,
        signature=signature if failed else None,
        attributes={**facts.attributes, **unit.attributes},
        calls=facts.calls,
        tokens=facts.tokens,
        cached_tokens=facts.cached_tokens,
        cost=facts.cost,
        repeats=facts.repeats,
        tool_ms=facts.tool_ms,
        model_ms=facts.model_ms,
    )
