"""Prices that one copy reads on SIGHUP are in force in all, and a start goes by its own file."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from actors.notifications import NotificationListener
from actors.supervision import Vitals
from svc.application.shared_prices import SharedPrices
from svc.domain.pricing.rates import OwnPrices
from svc.ingest.prices import BadPrices
from svc.store.postgres.database import Database
from svc.store.replicas.notices import hears_itself
from svc.store.replicas.prices import CHANNEL, OwnPricesStore

PRICES = '[[price]]\nmodel = "house-model"\ninput = {rate}\n'


def copy_of(store: Database) -> tuple[SharedPrices, list[OwnPrices]]:
    adopted: list[OwnPrices] = []
    return SharedPrices(OwnPricesStore(store), adopted.append), adopted


async def test_what_one_copy_reads_all_have_and_none_takes_it_twice(store: Database, tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    (one, of_one), (other, of_other) = copy_of(store), copy_of(store)
    vitals = Vitals("price-news", spare=True)
    looked = trio.Event()

    async def check() -> None:
        await other.check()
        if of_other:
            looked.set()

    async with trio.open_nursery() as nursery:
        listener = NotificationListener(notices=lambda: store.listening(CHANNEL), check=check, vitals=vitals)
        await other.check()
        nursery.start_soon(lambda: listener.run())
        file.write_text(PRICES.format(rate=1))
        await one.read_anew(file)
        with trio.fail_after(60):
            await looked.wait()
        nursery.cancel_scope.cancel()
    assert [prices.version for prices in of_other] == [of_one[0].version]
    assert of_other[0].text == file.read_bytes()
    await other.check()
    await one.check()
    assert (len(of_one), len(of_other)) == (1, 1)


async def test_a_start_goes_by_its_own_file_and_hears_of_later_ones(store: Database, tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(PRICES.format(rate=1))
    one, _ = copy_of(store)
    await one.read_anew(file)
    late, of_late = copy_of(store)
    await late.check()
    assert of_late == []
    file.write_text(PRICES.format(rate=2))
    await one.read_anew(file)
    await late.check()
    assert [prices.text for prices in of_late] == [file.read_bytes()]


async def test_a_bad_file_reaches_nobody(store: Database, tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text("not TOML")
    one, of_one = copy_of(store)
    with pytest.raises(BadPrices):
        await one.read_anew(file)
    assert of_one == []
    assert await OwnPricesStore(store).last() is None


async def test_a_direct_connection_hears_what_it_announces(store: Database) -> None:
    assert await hears_itself(store)
