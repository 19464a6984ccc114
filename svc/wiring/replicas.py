"""Wiring of what copies on one served database tell one another: prices, and attempts at signing in."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

from actors.attempts import AttemptReporter
from actors.notifications import NotificationListener
from actors.supervision import Board, Loop
from svc.application.shared_attempts import SharedAttempts
from svc.application.shared_prices import SharedPrices
from svc.front.auth.limits import AttemptLimiter
from svc.store.postgres.database import Database
from svc.store.replicas import attempts, prices


def price_loop(shared: SharedPrices, board: Board) -> Loop:
    """The actor that hears of what other copies have read."""
    subscribe = partial(shared.store.database.listening, prices.CHANNEL)
    return board.spare("price-news", partial(NotificationListener, notices=subscribe, check=shared.check))


def shared_attempts(limiter: AttemptLimiter, database: Database, window_s: float) -> SharedAttempts:
    """Through this database, under a name that no other copy has."""
    store = attempts.PostgresAttemptStore(database, str(uuid4()), window_s)
    shared = SharedAttempts(store, limiter.learn)
    limiter.shared(shared.queue.put)
    return shared


def attempt_loops(shared: SharedAttempts, board: Board) -> list[Loop]:
    """Who tells and who hears."""
    subscribe = partial(shared.store.database.listening, attempts.CHANNEL)
    return [
        board.spare("try-teller", partial(AttemptReporter, queue=shared.queue, store=shared.store)),
        board.spare("try-news", partial(NotificationListener, notices=subscribe, check=shared.check)),
    ]
