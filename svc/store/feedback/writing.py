"""Entries of feedback, written with the firings that show them among all classifiers'.

Owns the tables `feedback`, `feedback_name` and `feedback_refused`, and the rows of `classifier_event` whose
`classifier_id` begins with `feedback.`. An entry is `(project, source, id)`: one that comes again takes the
place of the first. Its trace need not be there. Retention takes entries away with their trace. A trace that
is rated is put into `fold_due`, from which detectors count it anew. Triggers keep the sums that `sums` reads.

Ordering: names are written before entries and both in one order, so that two writers cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import attrs

from svc.domain.feedback.entries import (
    MOST_NAMES,
    PREFIX,
    WATCHED_CATEGORIES,
    Better,
    Feedback,
    FeedbackSource,
)
from svc.store.accounts.audit import Action, record
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.rows import SETTLED
from svc.store.postgres.tombstones import erased_among, hold

#: A name's row is touched for its time alone so seldom, for all who give feedback meet in it.
_NAME_SEEN: Final = "interval '1 minute'"

#: Traces of a name that are counted anew where it gets another category to watch, the newest.
MOST_COUNTED_ANEW: Final = 10_000

#: Categories of a name that are told apart in sums, the first ones that it has. What was summed as one of
#: many must be taken away as that, so a category joins them at once or never. Migration 330 names the number.
KEPT_CATEGORIES: Final = 50

# The new range of each name that the project has, and new names while there is room. A name that is not
# written has nothing new, or has no room: the caller asks which.
_NAMES: Final = f"""
insert into feedback_name as n (project_id, name, low, high, graded, categories, first_at, last_at)
select $1, new.name, new.low, new.high, new.graded, c.categories, $5::timestamptz, $5
from unnest($2::text[], $3::float8[], $4::float8[], $6::bool[]) with ordinality
    as new (name, low, high, graded, place)
cross join lateral (select coalesce((array_agg(category order by category))[:{KEPT_CATEGORIES}], '{{}}')
    as categories from unnest($7::text[], $8::text[]) as given (name, category) where given.name = new.name) c
left join feedback_name known on known.project_id = $1 and known.name = new.name
-- What has nothing new is not even locked, as a conflict would.
where case
    when known.name is null then
        (select count(*) from feedback_name where project_id = $1) + new.place <= {MOST_NAMES}
    else new.graded > known.graded or known.last_at < $5::timestamptz - {_NAME_SEEN}
        or least(known.low, new.low) is distinct from known.low
        or greatest(known.high, new.high) is distinct from known.high
        or cardinality(known.categories) < {KEPT_CATEGORIES} and not c.categories <@ known.categories
    end
order by new.name
on conflict (project_id, name) do update
set low = least(n.low, excluded.low), high = greatest(n.high, excluded.high),
    graded = n.graded or excluded.graded,
    categories = (n.categories || array(select category from unnest(excluded.categories) as each (category)
        where category <> all(n.categories)))[:{KEPT_CATEGORIES}], last_at = excluded.last_at
"""

_ENTRIES: Final = """
insert into feedback as f (project_id, source, id, name, trace_id, span_id, session_id, number, category,
    text, author, judged_at, firing_id, created_at)
select $1, new.source, new.id, new.name, new.trace_id, new.span_id, new.session_id, new.number, new.category,
    new.text, new.author, coalesce(new.judged_at, $14), new.firing_id, $14
from unnest($2::text[], $3::text[], $4::text[], $5::bytea[], $6::bytea[], $7::text[], $8::float8[],
    $9::text[], $10::text[], $11::text[], $12::timestamptz[],
    $13::uuid[]) as new (source, id, name, trace_id, span_id, session_id, number, category, text, author,
    judged_at, firing_id)
on conflict (project_id, source, id) do update
set name = excluded.name, trace_id = excluded.trace_id, span_id = excluded.span_id,
    session_id = excluded.session_id, number = excluded.number, category = excluded.category,
    text = excluded.text, author = excluded.author, judged_at = excluded.judged_at
where (f.name, f.trace_id, f.span_id, f.session_id, f.number, f.category, f.text, f.author)
    is distinct from (excluded.name, excluded.trace_id, excluded.span_id, excluded.session_id,
    excluded.number, excluded.category, excluded.text, excluded.author)
"""

# One firing an entry; it keeps the time at which the entry first came.
_FIRINGS: Final = """
insert into classifier_event as e (project_id, id, classifier_id, severity, confidence, subject_kind,
    subject_session_id, subject_trace_id, subject_span_id, summary, created_at)
select $1, new.id, new.classifier, 'low', 'high', new.kind, new.session_id, new.trace_id, new.span_id,
    new.summary, $9
from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::text[])
    as new (id, classifier, kind, session_id, trace_id, span_id, summary)
on conflict (project_id, id) do update
set classifier_id = excluded.classifier_id, subject_kind = excluded.subject_kind,
    subject_session_id = excluded.subject_session_id, subject_trace_id = excluded.subject_trace_id,
    subject_span_id = excluded.subject_span_id, summary = excluded.summary
where (e.classifier_id, e.subject_kind, e.subject_session_id, e.subject_trace_id, e.subject_span_id,
    e.summary) is distinct from (excluded.classifier_id, excluded.subject_kind, excluded.subject_session_id,
    excluded.subject_trace_id, excluded.subject_span_id, excluded.summary)
"""

# What had no room: people are told how much, and when last.
_REFUSED: Final = """
insert into feedback_refused as r (project_id, entries, last_at) values ($1, $2, $3)
on conflict (project_id) do update set entries = r.entries + excluded.entries, last_at = excluded.last_at
"""

# The newest traces that were given these names and settled already.
_NAMES_AGAIN: Final = f"""
insert into fold_due (project_id, trace_id, rated)
select $1, t.trace_id, true from (
    select distinct f.trace_id from unnest($2::text[]) as each (name) cross join lateral (
        select trace_id from feedback where project_id = $1 and name = each.name and trace_id is not null
        order by judged_at desc limit $3) f
) f join trace t on t.project_id = $1 and t.trace_id = f.trace_id and {SETTLED}
"""

# Those that settled already; one that has not is counted with its ratings when it does.
_AGAIN: Final = f"""
insert into fold_due (project_id, trace_id, rated)
select project_id, trace_id, true from trace
where project_id = $1 and trace_id = any($2::bytea[]) and {SETTLED}
"""


async def write_feedback(
    connection: Connection, project_id: int, entries: Iterable[Feedback], now: datetime
) -> frozenset[str]:
    """Keep entries, in the caller's transaction. Returns the names that the project has no room for: their
    entries are not kept. Nor is what somebody says of a trace or session that was erased.
    """
    newest = {(entry.source, entry.id): entry for entry in entries}
    if newest:
        newest = await _not_erased(connection, project_id, newest, now)
    if not newest:
        return frozenset()
    without_room = await _write_names(connection, project_id, newest.values(), now)
    kept = [entry for _, entry in sorted(newest.items()) if entry.name not in without_room]
    if kept:
        await _write_entries(connection, project_id, kept, now)
        rated = {entry.trace_id for entry in kept if entry.trace_id and _is_rating(entry)}
        await _count_again(connection, project_id, rated)
    if without_room:
        await connection.execute(_REFUSED, project_id, len(newest) - len(kept), now)
    return without_room


def _is_rating(entry: Feedback) -> bool:
    return entry.number is not None or entry.category is not None


_Entries = dict[tuple[FeedbackSource, str], Feedback]


async def _not_erased(connection: Connection, project_id: int, entries: _Entries, now: datetime) -> _Entries:
    state = await hold(connection, [project_id])
    mentions = ((project_id, entry.trace_id, entry.session_id, entry.author) for entry in entries.values())
    erased = await erased_among(connection, state, mentions)
    if erased is None:
        return entries
    return {
        key: entry
        for key, entry in entries.items()
        if not erased.forbids(
            project_id, entry.trace_id, entry.session_id, entry.author, entry.judged_at or now
        )
    }


async def _write_names(
    connection: Connection, project_id: int, entries: Collection[Feedback], now: datetime
) -> frozenset[str]:
    numbers: dict[str, list[float]] = {}
    for entry in entries:
        numbers.setdefault(entry.name, []).extend(() if entry.number is None else (entry.number,))
    names = sorted(numbers)
    lows = [min(numbers[name], default=None) for name in names]
    highs = [max(numbers[name], default=None) for name in names]
    graded = [any(number not in (0, 1) for number in numbers[name]) for name in names]
    pairs = sorted({(entry.name, entry.category) for entry in entries if entry.category is not None})
    categories = [name for name, _ in pairs], [category for _, category in pairs]
    watched_before = await _watched(connection, project_id, categories[0])
    await connection.execute(_NAMES, project_id, names, lows, highs, now, graded, *categories)
    watched_now = await _watched(connection, project_id, names)
    # What is watched from now on has a past in which it did not occur.
    names_again = [
        name for name, watched in watched_before.items() if 0 < len(watched) < len(watched_now[name])
    ]
    if names_again:
        await connection.execute(_NAMES_AGAIN, project_id, names_again, MOST_COUNTED_ANEW)
    return frozenset(names) - watched_now.keys()


async def _watched(
    connection: Connection, project_id: int, names: Collection[str]
) -> dict[str, Sequence[str]]:
    """The categories that detectors watch, of those of the names that are there; none of one with numbers."""
    if not names:
        return {}
    rows = await connection.fetch(
        f"select name, case when low is null then categories[:{WATCHED_CATEGORIES}] else '{{}}' end"
        " as watched from feedback_name where project_id = $1 and name = any($2::text[])",
        project_id,
        names,
    )
    return {row["name"]: row["watched"] for row in rows}


async def _write_entries(
    connection: Connection, project_id: int, entries: Sequence[Feedback], now: datetime
) -> None:
    await connection.execute(
        _ENTRIES,
        project_id,
        [entry.source for entry in entries],
        [entry.id for entry in entries],
        [entry.name for entry in entries],
        [entry.trace_id for entry in entries],
        [entry.span_id for entry in entries],
        [entry.session_id for entry in entries],
        [entry.number for entry in entries],
        [entry.category for entry in entries],
        [entry.text for entry in entries],
        [entry.author for entry in entries],
        [entry.judged_at for entry in entries],
        [entry.firing_id for entry in entries],
        now,
    )
    await connection.execute(
        _FIRINGS,
        project_id,
        [entry.firing_id for entry in entries],
        [PREFIX + entry.name for entry in entries],
        [entry.subject_kind for entry in entries],
        [entry.session_id for entry in entries],
        [entry.trace_id for entry in entries],
        [entry.span_id for entry in entries],
        [entry.summary for entry in entries],
        now,
    )


async def _count_again(connection: Connection, project_id: int, trace_ids: Collection[bytes]) -> None:
    """Have these traces counted with the ratings that they have now."""
    if trace_ids:
        await connection.execute(_AGAIN, project_id, sorted(trace_ids))


@attrs.define(eq=False)
class FeedbackStore:
    """Raises `Outage`."""

    database: Database

    async def keep(self, project_id: int, entries: Sequence[Feedback], now: datetime) -> frozenset[str]:
        """Keep entries in one transaction. Returns the names that the project has no room for."""
        return await self.database.run(
            lambda connection: write_feedback(connection, project_id, entries, now)
        )

    async def drop(self, project_id: int, source: FeedbackSource, id_: str, actor: str) -> bool:
        """Take one entry away. Whether it was there."""

        async def work(connection: Connection) -> bool:
            # The entry.
            row = await connection.fetchrow(
                "delete from feedback where project_id = $1 and source = $2 and id = $3"
                " returning firing_id, name, trace_id, trace_id is not null"
                " and (number is not null or category is not null) as is_rating",
                project_id,
                source,
                id_,
            )
            if row is not None:
                await connection.execute(
                    "delete from classifier_event where project_id = $1 and id = $2",
                    project_id,
                    row["firing_id"],
                )
                if row["is_rating"]:
                    await _count_again(connection, project_id, [row["trace_id"]])
                # An entry that is given is no row of the audit: it says by itself who gave it and when.
                details = {"name": row["name"], "source": source}
                await _audit(connection, "feedback.remove", project_id, ("feedback", id_), actor, details)
            return row is not None

        return await self.database.run(work)

    async def set_better(self, project_id: int, name: str, better: Better | None, actor: str) -> bool:
        """Say which end of a name's numbers is the good one; None leaves that to the name. Whether there is
        such a name.
        """

        async def work(connection: Connection) -> bool:
            if not await _set(connection, project_id, name, "better", better):
                return False
            subject = ("feedback_name", name)
            await _audit(connection, "feedback.better", project_id, subject, actor, {"better": better})
            return True

        return await self.database.run(work)

    async def set_bad(self, project_id: int, name: str, categories: Sequence[str], actor: str) -> bool:
        """Say which categories of a name are bad, and have its newest traces counted anew by that. Whether
        there is such a name.
        """

        async def work(connection: Connection) -> bool:
            if not await _set(connection, project_id, name, "bad", list(categories)):
                return False
            await connection.execute(_NAMES_AGAIN, project_id, [name], MOST_COUNTED_ANEW)
            details = {"categories": list(categories)}
            await _audit(connection, "feedback.bad", project_id, ("feedback_name", name), actor, details)
            return True

        return await self.database.run(work)


async def _set(
    connection: Connection, project_id: int, name: str, column: Literal["better", "bad"], value: Any
) -> bool:
    status: str = await connection.execute(
        f"update feedback_name set {column} = $3 where project_id = $1 and name = $2", project_id, name, value
    )
    return status.rpartition(" ")[2] != "0"


async def _audit(
    connection: Connection,
    action: Action,
    project_id: int,
    subject: tuple[str, str],
    actor: str,
    details: Mapping[str, Any],
) -> None:
    await record(connection, action, actor=actor, project_id=project_id, subject=subject, details=details)
