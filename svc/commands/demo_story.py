"""Four weeks of two applications, for `trace-svc demo --weeks`: the same traces every time.

Owns: `traces_of`, which makes a day's traces, and `probe`, a trace by which a story that was sent is known.
`demo_shop` holds the three planted faults, `demo_reports` none. Ids come from the seed and the days that are
left until the end, only times from the end itself. Called by `demo`. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from svc.commands import demo_reports, demo_shop
from svc.commands.demo_recorder import StoryTrace

SEED: Final = 20_261
WEEKEND: Final = 0.45
#: How busy each hour of the day is.
HOURS: Final = (1, 1, 1, 1, 1, 2, 3, 5, 8, 11, 12, 11, 9, 10, 11, 11, 10, 9, 8, 7, 6, 4, 3, 2)


@attrs.frozen
class _Application:
    """One of the two: what its dice begin with, its sessions of a weekday and their first number, its users,
    the sessions that are there on any weekday, and what makes the traces of one.
    """

    seed: str
    sessions: int
    first_session: int
    users: int
    always: frozenset[int]
    traces: Callable[[random.Random, datetime, datetime, str, int], Iterator[StoryTrace]]


_APPLICATIONS: Final = (
    # The first session holds the probe, the other one the token.
    _Application(
        f"{SEED}", demo_shop.SESSIONS, 0, demo_shop.USERS, frozenset({0, 20}), demo_shop.shop_session
    ),
    _Application(
        f"{SEED} desk",
        demo_reports.SESSIONS,
        demo_reports.FIRST_SESSION,
        demo_reports.USERS,
        frozenset(),
        demo_reports.desk_session,
    ),
)


def probe(days: int) -> bytes:
    """The id of a trace of the last day, the same in a story of any length."""
    return next(traces_of(days - 1, days, datetime(2026, 1, 5, tzinfo=UTC))).spans[0].trace_id


def traces_of(day: int, days: int, ends_at: datetime) -> Iterator[StoryTrace]:
    """The traces of one day, counted from 0, of a story that ends at a midnight. Day `days` is the one that
    begins there, in which what was planted goes on.
    """
    for application in _APPLICATIONS:
        yield from _traces_of(application, day, days, ends_at)


def _traces_of(application: _Application, day: int, days: int, ends_at: datetime) -> Iterator[StoryTrace]:
    dice = random.Random(f"{application.seed} {day - days}")  # noqa: S311 - sample data
    midnight = ends_at - timedelta(days=days - day)
    share = WEEKEND if midnight.weekday() >= 5 else 1.0
    # All sessions of a day are thrown, whichever weekday it falls on, so that those that stay are the same.
    for session in range(application.sessions):
        own = random.Random(f"{application.seed} {day - days} {session}")  # noqa: S311 - sample data
        is_drawn = dice.random() < share or session in application.always
        hour = dice.choices(range(24), HOURS)[0]
        started_at = midnight + timedelta(hours=hour, seconds=dice.uniform(0, 3600))
        user = dice.randrange(application.users)
        if is_drawn:
            name = f"demo-{days - day}-{application.first_session + session}"
            yield from application.traces(own, started_at, ends_at, name, user)
