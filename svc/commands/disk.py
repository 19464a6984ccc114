"""`trace-svc disk`: what takes the disk, how fast it grows, and when the budget is reached.

Looks only: what is dropped when is the service's own business.
"""

from __future__ import annotations

import argparse
from typing import Any

from svc.application.open_store import open_store
from svc.commands.terminal import offer_json, print_columns, print_json
from svc.config.table import Settings
from svc.domain.quantities import percent, size
from svc.domain.retention.disk_budget import DiskUse, Forecast, drop_steps, forecast, level_of
from svc.runtime.clock import now
from svc.store.retention.disk_use import PostgresDiskStore


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Shows how much disk the database, its log and the spool use, by table and by day, and how fast\n"
        "that grows. With SVC_DISK_BUDGET_BYTES: when the budget is reached, and what would be deleted\n"
        "first."
    )
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Print it. Raises `Outage`."""
    async with open_store(settings, as_it_is=True) as store:
        use = await PostgresDiskStore(store.database, settings.data_dir / "spool").measure()
    budget = settings.disk_budget_bytes
    disk_forecast = forecast(use, budget, now().date(), settings.trace_ttl_days)
    if arguments.json:
        print_json(disk_facts(use, budget, disk_forecast))
        return
    print(f"database {size(use.database)}, its log {size(use.wal)}, spool {size(use.spool)}")
    if budget:
        print(f"budget {size(budget)}: {percent(use.total / budget)} used ({level_of(use.total, budget)})")
    else:
        print("no budget (SVC_DISK_BUDGET_BYTES is 0)")
    print(_growth(disk_forecast, budget))
    first = next(iter(drop_steps(use.days, now().date())), None)
    if budget and first is not None:
        print(f"dropped first, at 95 %: the {first.what} of {first.day}")
    print()
    print_columns([("table", "size"), *((name, size(table_bytes)) for name, table_bytes in use.tables[:20])])
    if use.days:
        print()
        print_columns(
            [
                ("day", "payloads", "spans and calls"),
                *((str(usage.day), size(usage.payloads), size(usage.rest)) for usage in use.days),
            ]
        )


def _growth(disk_forecast: Forecast, budget: int) -> str:
    growth = f"growth {size(disk_forecast.bytes_a_day)} a day, by the whole days of the last week"
    if not budget or not disk_forecast.bytes_a_day:
        return growth
    if disk_forecast.reached_on is None:
        return f"{growth}; the budget is not reached: expired days make room"
    return f"{growth}; the budget is reached on {disk_forecast.reached_on}"


def disk_facts(use: DiskUse, budget: int, disk_forecast: Forecast) -> dict[str, Any]:
    """What is printed, for programs."""
    return {
        "database_bytes": use.database,
        "wal_bytes": use.wal,
        "spool_bytes": use.spool,
        "budget_bytes": budget,
        "level": level_of(use.total, budget) if budget else None,
        "bytes_a_day": disk_forecast.bytes_a_day,
        "reached_on": None if disk_forecast.reached_on is None else str(disk_forecast.reached_on),
        "tables": dict(use.tables),
        "days": [
            {"day": str(usage.day), "payload_bytes": usage.payloads, "other_bytes": usage.rest}
            for usage in use.days
        ],
    }
