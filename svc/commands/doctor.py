"""`trace-svc doctor`: what is configured, what is reachable, what is wrong; one line each.

Reads and asks, never changes anything: it does not start the embedded server, does not migrate and makes no
key. Exit status 1 when any line says FAIL.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import trio

from protocol.compiled import state as compiled
from protocol.rest.accounts import Mode
from protocol.storage import Outage
from svc.commands.finding import Finding
from svc.commands.own_service import asking, own_url
from svc.commands.place import named_project
from svc.commands.report import print_report
from svc.commands.tls import certificate_findings, own_certificate
from svc.config.checks import boot_refusals, boot_warnings
from svc.config.table import BadSetting, Settings, setting_rows
from svc.domain.access import signup_warnings
from svc.ingest.prices import BadPrices, price_book
from svc.runtime.asyncio_loop import asyncio_loop
from svc.runtime.clock import now
from svc.secrets.own import kept_here, with_own_secrets
from svc.store.accounts.projects import DEFAULT_ORG
from svc.store.postgres.database import AWAY, Connection, Database
from svc.store.postgres.embedded.cluster import MAJOR, EmbeddedServerError, majors_in
from svc.store.postgres.embedded.majors import older_data
from svc.store.postgres.migrate import migrations
from svc.store.replicas.notices import hears_itself
from svc.store.spans.exporters import ExporterStore
from svc.wiring.open_store import open_store, replica_address, served_address
from svc.wiring.outbound import outbound
from svc.wiring.spools import kafka

TIMEOUT_S = 5.0


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "What is configured, what is reachable and what is wrong. With --project instead:\n"
        "who sends spans into it, what is understood of them, and what to change."
    )
    parser.add_argument("--org", default=DEFAULT_ORG, help="organization (default: %(default)s)")
    parser.add_argument("--project", help="say what this project's exporters send")
    parser.add_argument(
        "--days",
        type=int,
        choices=range(1, 31),
        default=7,
        metavar="N",
        help="over the last N days (default: 7)",
    )


async def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print what was seen. Returns the exit status."""
    if arguments.project is None:
        return await _examine(settings, os.environ)
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        print_report(await ExporterStore(store.database).report(project.id, now(), arguments.days))
    return 0


async def _examine(settings: Settings, env: Mapping[str, str]) -> int:
    findings = await examined(settings, env)
    for finding in findings:
        print(finding.line())
    return int(any(finding.verdict == "FAIL" for finding in findings))


async def examined(settings: Settings, env: Mapping[str, str]) -> list[Finding]:
    """Everything that was looked at."""
    findings = [*_settings(settings, env), *_folder(settings)]
    findings += await _database(settings)
    findings += await _brokers(settings)
    findings += own_certificate(settings)
    findings += await _service(settings)
    findings += [Finding("ok", "outbound", line.sentence()) for line in outbound(settings)]
    findings.append(_prices(settings))
    return findings


def _settings(settings: Settings, env: Mapping[str, str]) -> Iterator[Finding]:
    yield Finding("ok", "version", f"trace-svc {version('trace-svc')}")
    as_meant, sentence = compiled()
    yield Finding("ok" if as_meant or not settings.compiled_modules else "warn", "modules", sentence)
    named = sorted(row.name for row in setting_rows() if row.name in env)
    yield Finding("ok", "settings", "set: " + (", ".join(named) or "none, all defaults"))
    try:
        settings = with_own_secrets(settings, env)
    except (BadSetting, OSError) as error:
        yield Finding("FAIL", "secrets", str(error))
    for name, path in kept_here(settings, env).items():
        where = f"kept in {path}" if path.exists() else f"will be made in {path} at the first start"
        yield Finding("ok", "secrets", f"{name} {where}")
    absent = {name for name, path in kept_here(settings, env).items() if not path.exists()}
    for warning in boot_warnings(settings, env):
        if warning.partition(" ")[0] not in absent:
            yield Finding("warn", "settings", warning)
    for refusal in boot_refusals(settings):
        yield Finding("FAIL", "settings", refusal)


def _prices(settings: Settings) -> Finding:
    try:
        return Finding("ok", "prices", f"price book {price_book(settings.prices_file).version}")
    except BadPrices as bad:
        return Finding("FAIL", "prices", str(bad))


def _folder(settings: Settings) -> Iterator[Finding]:
    if served_address(settings) is not None:
        return
    folder: Path = settings.data_dir
    if not folder.exists():
        yield Finding("ok", "data", f"{folder} will be made at the first start")
    elif not folder.is_dir():
        yield Finding("FAIL", "data", f"{folder} is not a folder")
    else:
        yield Finding("ok", "data", f"{folder} exists")


def _embedded(settings: Settings) -> list[Finding]:
    found = [Finding("ok", "database", "embedded PostgreSQL, started and watched by the service")]
    home = settings.data_dir / "postgres"
    try:
        old = older_data(home)
    except EmbeddedServerError as newer:
        return [*found, Finding("FAIL", "database", str(newer))]
    if old is not None:
        text = f"{old} is of PostgreSQL {old.parent.name}: the next start takes it over to {MAJOR}"
        found.append(Finding("warn", "database", f"{text}, and keeps what was before"))
    there = majors_in(home)
    if MAJOR in there:
        kept = [home / major for major in there if int(major) < int(MAJOR)]
        found += [
            Finding(
                "warn",
                "database",
                f"{path} is of an older PostgreSQL: `trace-svc upgrade --finish` removes it",
            )
            for path in kept
        ]
    return found


async def _database(settings: Settings) -> list[Finding]:
    address = served_address(settings)
    if address is None:
        return _embedded(settings)

    async def work(connection: Connection) -> tuple[str, int]:
        # Which server this is, and how far its schema has come.
        server = await connection.fetchval("show server_version")
        if await connection.fetchval("select to_regclass('schema_migration')") is None:
            return server, 0
        return server, await connection.fetchval("select coalesce(max(number), 0) from schema_migration")

    async with open_store(settings, as_it_is=True) as store:
        try:
            server, step = await store.database.run(work, transaction=False, timeout_s=TIMEOUT_S)
            hears = await hears_itself(store.database)
        except Outage as outage:
            return [Finding("FAIL", "database", f"{address.label()}: {outage}")]
    known = migrations()[-1].number
    schema = Finding("ok", "schema", f"at step {step} of {known}")
    if step > known:
        schema = Finding("FAIL", "schema", f"at step {step}, this release knows {known}: it is too old")
    heard = Finding("ok", "notices", "what one copy announces the others hear")
    if not hears:
        text = "LISTEN hears nothing: a pooler of transactions stands before the database, connect past it"
        heard = Finding("FAIL", "notices", text)
    found = [Finding("ok", "database", f"{address.label()} runs PostgreSQL {server}"), schema, heard]
    return [*found, *await _replica(settings)]


async def _replica(settings: Settings) -> list[Finding]:
    """The replica as it looks from here; how far it is behind the service knows."""
    address = replica_address(settings)
    if address is None:
        return []
    async with asyncio_loop(AWAY), Database(address, pool_size=1).opened() as database:
        try:
            (row,) = await database.fetch("select pg_is_in_recovery() as follows", timeout_s=TIMEOUT_S)
        except Outage as outage:
            return [Finding("warning", "replica", f"{address.label()}: {outage}; the primary is asked")]
    if not row["follows"]:
        return [Finding("FAIL", "replica", f"{address.label()} follows no other server: it is no replica")]
    return [Finding("ok", "replica", f"{address.label()} follows another server")]


async def _brokers(settings: Settings) -> list[Finding]:
    if settings.spool_mode != "kafka":
        return []
    brokers = kafka(settings)
    try:
        with trio.fail_after(TIMEOUT_S):
            seen = await trio.to_thread.run_sync(brokers.described, abandon_on_cancel=True)
    except (Outage, trio.TooSlowError) as error:
        return [Finding("FAIL", "brokers", f"{brokers.servers}: {error}")]
    return [Finding("ok", "brokers", f"{brokers.servers}: {seen}")]


async def _service(settings: Settings) -> list[Finding]:
    url = own_url(settings)
    try:
        with trio.fail_after(TIMEOUT_S):
            async with asking(url, settings, timeout_s=TIMEOUT_S) as client:
                report = (await client.get("/actuator/health")).json()
                mode = (await client.get("/auth/mode")).json()
    except (httpx2.HTTPError, trio.TooSlowError, OSError, ValueError):
        return [Finding("warn", "service", f"nothing of ours answers at {url}; is it running?")]
    if not isinstance(report, dict) or "components" not in report:
        return [Finding("FAIL", "service", f"another program answers at {url}")]
    findings = []
    for name, part in report["components"].items():
        verdict = "ok" if part.get("status") == "UP" else "FAIL"
        findings.append(Finding(verdict, name, f"{part.get('status')} at {url}"))
    return [
        *findings,
        *certificate_findings(report["components"]),
        *_refused(report["components"]),
        *_sign_up(settings, mode),
    ]


def _refused(components: Mapping[str, Any]) -> list[Finding]:
    """Exports that the running service refused in the last minutes, a line for each cause."""
    causes = components.get("ingest", {}).get("details", {}).get("refused_lately", [])
    return [
        Finding(
            "warn",
            "refused",
            f"{one['count']} lately with {one['status']}: {one['message']} ({one['cause']})",
        )
        for one in causes
    ]


def _sign_up(settings: Settings, told: Any) -> list[Finding]:
    """Who may sign up, as the running service says it (`GET /auth/mode`); nothing while it cannot say."""
    try:
        signing = msgspec.convert(told["data"], Mode)
    except (TypeError, KeyError, msgspec.ValidationError):
        return []
    if signing.auth == "disabled":
        return []
    warnings = signup_warnings(
        signing.signup,
        org_slug=DEFAULT_ORG,
        reachable=not settings.local,
        passwords=signing.auth == "password",
    )
    return [Finding("warn", "sign-up", text) for text in warnings] or [
        Finding("ok", "sign-up", f"mode {signing.signup}")
    ]
