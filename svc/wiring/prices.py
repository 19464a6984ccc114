"""Wiring of the operator's prices among several copies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from actors.notifications import NotificationListener
from actors.supervision import Board, Loop
from svc.application.shared_prices import SharedPrices
from svc.domain.pricing.rates import OwnPrices
from svc.store.postgres.database import Database
from svc.store.replicas.notices import notices
from svc.store.replicas.prices import CHANNEL, OwnPricesStore


def shared_prices(database: Database, adopt: Callable[[OwnPrices], None]) -> SharedPrices:
    """Through this database."""
    return SharedPrices(OwnPricesStore(database), adopt)


def price_loop(prices: SharedPrices, board: Board) -> Loop:
    """The actor that hears of what other copies have read, and its vitals on the board."""
    subscribe = partial(notices, prices.store.database, CHANNEL)
    return board.spare("price-news", partial(NotificationListener, notices=subscribe, check=prices.check))
