"""Wiring of the limits on sign-in among several copies: what one counts, all count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import uuid4

import attrs

from actors.news import News
from actors.supervision import Actor, Board, Vitals
from actors.tries import TryBook, TryTeller
from svc.front.auth.limits import Tries
from svc.store.postgres.database import Database
from svc.store.replicas.notices import notices
from svc.store.replicas.tries import CHANNEL, TryStore


@attrs.define(eq=False)
class SharedTries:
    """The counts of this copy and the way to the others."""

    tries: Tries
    store: TryStore
    book: TryBook = attrs.field(factory=TryBook)
    _seen: dict[str, int] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.tries.shared(self.book.put)

    async def look(self) -> None:
        """Count what others have counted since. Raises `Outage`."""
        news = await self.store.news(self._seen)
        self._seen = news.seen
        for attempt in news.tries:
            self.tries.learn(attempt)

    def loops(self, board: Board) -> list[tuple[Callable[[], Actor], Vitals]]:
        """Who tells and who hears."""
        telling, hearing = board.enrol("try-teller", spare=True), board.enrol("try-news", spare=True)
        subscribe = partial(notices, self.store.database, CHANNEL)
        return [
            (lambda: TryTeller(book=self.book, shelf=self.store, vitals=telling), telling),
            (lambda: News(notices=subscribe, look=self.look, vitals=hearing), hearing),
        ]


def shared_tries(tries: Tries, database: Database, window_s: float) -> SharedTries:
    """Through this database, under a name that no other copy has."""
    return SharedTries(tries, TryStore(database, str(uuid4()), window_s))
