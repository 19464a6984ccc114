"""`trace-svc support-bundle [FILE]`: what somebody who helps needs to see, in one archive, without payloads.

Settings without secrets, versions, doctor, health and metrics of the running service, sizes, plans, the last
errors of the embedded database. Works beside the running service, and without it.

Secrets: values of secret settings are said to be set or not; of URLs the credentials are taken out; texts of
errors, which may quote what a client sent, are cut to their kind.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import re
import sys
import tarfile
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import attrs
import httpx2
import msgspec
import trio

from protocol.operator import OperatorError
from protocol.release import release
from protocol.storage import Outage
from svc.application.open_store import open_store
from svc.commands.disk import disk_facts
from svc.commands.doctor import examined
from svc.commands.own_service import asking, own_url
from svc.commands.terminal import offer_json, print_json
from svc.config.table import Settings, setting_rows
from svc.domain.retention.disk_budget import forecast
from svc.runtime.clock import now
from svc.store.backup.catalog import steps
from svc.store.postgres.database import Connection, Database
from svc.store.reads.plans import measured_plans
from svc.store.retention.disk_use import PostgresDiskStore

_TIMEOUT_S: Final = 30.0
_LOG_LINES: Final = 200
_LOG_BYTES: Final = 1024 * 1024
_TROUBLE: Final = re.compile(r"\b(WARNING|ERROR|FATAL|PANIC):")
#: What the probe of each start is told.
_STARTING: Final = "the database system is starting up"
#: What stands between quotation marks in a line of the server may be somebody's text.
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
#: Fields of the health report that hold texts of errors.
_ERRORS: Final = ("last_error", "error", "waiting_for", "busy")
_PERSONAL: Final = ("ACME_EMAIL",)


def add(parser: argparse.ArgumentParser) -> None:
    """Its argument."""
    parser.description = (
        "Writes an archive for whoever helps you: settings without secrets, versions, doctor, health,\n"
        "metrics, sizes, query plans, the last errors. No payloads, no keys, no names."
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="default: trace-svc-support-TIME.tar.gz in the current folder",
    )
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Write it. Raises `OperatorError` when the file is there already, `OSError`."""
    moment = now()
    path = arguments.file or Path(f"trace-svc-support-{moment:%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        raise OperatorError(f"{path} already exists: choose another file")
    parts = await gathered(settings, os.environ, moment)
    _write(path, parts, moment)
    if arguments.json:
        print_json({"file": str(path), "parts": list(parts)})
        return
    print(f"wrote {path}: {', '.join(parts)}")
    print("check it before you pass it on: it contains settings, sizes and query plans, but no payloads")


def _write(path: Path, parts: Mapping[str, str], moment: datetime) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in parts.items():
            data = text.encode(errors="backslashreplace")
            entry = tarfile.TarInfo(f"trace-svc-support/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(moment.timestamp()), 0o600
            archive.addfile(entry, io.BytesIO(data))


async def gathered(settings: Settings, env: Mapping[str, str], moment: datetime) -> dict[str, str]:
    """Every part of the bundle by its name. What cannot be had says why."""
    parts = {"versions.json": _json(versions()), "settings.json": _json(shown_settings(env))}
    doctor = await examined(settings, env)
    parts["doctor.txt"] = "\n".join(_masked(finding.line()) for finding in doctor) + "\n"
    parts |= await _of_service(settings)
    try:
        async with open_store(settings, as_it_is=True) as store:
            parts |= await _of_database(settings, store.database, moment)
    except (Outage, OperatorError) as error:
        parts["database.txt"] = f"the database is not available: {type(error).__name__}\n"
    log = settings.data_dir / "postgres" / "log" / "server.log"
    parts["database-errors.txt"] = await trio.to_thread.run_sync(_last_errors, log)
    return parts


def versions() -> dict[str, Any]:
    """Of the release, of Python, of the system, of what is installed beside it."""
    return {
        "trace-svc": release(),
        "python": sys.version,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": dict(sorted((package.metadata["Name"], package.version) for package in distributions())),
    }


def shown_settings(env: Mapping[str, str]) -> dict[str, str]:
    """Each setting that is set, without what is secret of it."""
    settings = {}
    for row in setting_rows():
        value = env.get(row.name, "").strip()
        if value:
            settings[row.name] = (
                "(set)" if row.secret or row.name in _PERSONAL else _without_credentials(value)
            )
    return settings


def _without_credentials(value: str) -> str:
    parts = urlsplit(value)
    if not parts.scheme or not parts.netloc:
        return value
    return urlunsplit(
        (parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "…" if parts.query else "", "")
    )


async def _of_service(settings: Settings) -> dict[str, str]:
    url = own_url(settings)
    try:
        with trio.fail_after(_TIMEOUT_S):
            async with asking(url, settings, timeout_s=_TIMEOUT_S) as client:
                health = (await client.get("/actuator/health")).json()
                metrics = (await client.get("/actuator/prometheus")).text
    except (httpx2.HTTPError, ValueError, trio.TooSlowError) as error:
        return {"health.txt": f"no service answers at {url} ({type(error).__name__})\n"}
    return {"health.json": _json(kinds_of_errors(health)), "metrics.txt": metrics}


def kinds_of_errors(report: Any) -> Any:
    """A report with the texts of errors cut to what comes before their first colon."""
    match report:
        case dict():
            return {
                key: value.partition(":")[0]
                if key in _ERRORS and isinstance(value, str)
                else kinds_of_errors(value)
                for key, value in report.items()
            }
        case list():
            return [kinds_of_errors(entry) for entry in report]
        case _:
            return report


async def _of_database(settings: Settings, database: Database, moment: datetime) -> dict[str, str]:
    use = await PostgresDiskStore(database, settings.data_dir / "spool").measure()
    disk_forecast = forecast(use, settings.disk_budget_bytes, moment.date(), settings.trace_ttl_days)
    plans = [attrs.asdict(plan) for plan in await measured_plans(database, moment)]
    return {
        "database.json": _json(await database.run(_server, readonly=True)),
        "sizes.json": _json(disk_facts(use, settings.disk_budget_bytes, disk_forecast)),
        "plans.txt": "\n\n".join(
            "\n".join([f"{plan['question']}: {plan['took_ms']} ms", *plan["plans"]]) for plan in plans
        ),
    }


async def _server(connection: Connection) -> dict[str, Any]:
    # What an operator changed of the server, and how busy it is.
    changed = await connection.fetch(
        "select name, setting, unit from pg_settings where source not in ('default', 'override', 'client')"
        " and name !~ 'file|directory|directories|listen|cluster_name|ssl|auth|host' order by 1"
    )
    tables = await connection.fetch(
        "select relname as table, n_live_tup as rows, n_dead_tup as dead, last_autovacuum, last_autoanalyze,"
        " seq_scan, idx_scan from pg_stat_user_tables order by n_live_tup desc limit 40"
    )
    waits = await connection.fetch(
        "select state, wait_event_type, wait_event, count(*) as connections from pg_stat_activity"
        " where datname = current_database() group by 1, 2, 3 order by 4 desc limit 40"
    )
    return {
        "version": await connection.fetchval("select version()"),
        "steps": [step.number for step in await steps(connection)],
        "settings": {row["name"]: f"{row['setting']}{row['unit'] or ''}" for row in changed},
        "tables": [{key: str(value) for key, value in row.items()} for row in tables],
        "connections": [{key: str(value) for key, value in row.items()} for row in waits],
    }


def _last_errors(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return "no log of an embedded database here\n"
    trouble = [_masked(line) for line in lines if _TROUBLE.search(line) and _STARTING not in line]
    return "\n".join(trouble[-_LOG_LINES:]) + "\n"


def _masked(line: str) -> str:
    return _QUOTED.sub("“…”", line)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
