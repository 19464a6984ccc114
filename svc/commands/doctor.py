"""`trace-svc doctor`: what is configured, what is reachable, what is wrong; one line each.

Reads and asks, never changes anything: it does not start the embedded server, does not migrate and makes no
key. Exit status 1 when any line says FAIL.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import trio

from protocol.compiled import state as compiled
from protocol.paths import obstacle, path_refusal
from protocol.release import release
from protocol.rest.accounts import Mode
from protocol.storage import Outage
from svc.application.brokers import described
from svc.application.open_store import open_store, replica_address, served_address
from svc.commands.finding import Finding
from svc.commands.outbound import outbound
from svc.commands.own_service import asking, own_url
from svc.commands.report import print_attributes, print_report
from svc.commands.target import named_project
from svc.commands.terminal import print_json, printable
from svc.commands.tls import certificate_findings, own_certificate
from svc.config.checks import boot_refusals, boot_warnings
from svc.config.table import BadSetting, Settings, setting_rows
from svc.domain.accounts.access import signup_warnings
from svc.domain.exporters.report import rename_text
from svc.domain.quantities import counted
from svc.ingest.prices import BadPrices, price_book
from svc.runtime.asyncio_loop import asyncio_loop
from svc.runtime.clock import now
from svc.secrets.own import kept_here, with_own_secrets
from svc.store.accounts.projects import DEFAULT_ORG
from svc.store.postgres.database import AWAY, Database
from svc.store.postgres.embedded.cluster import MAJOR, EmbeddedServerError, majors_in
from svc.store.postgres.embedded.majors import older_data
from svc.store.postgres.embedded.postmaster import read_postmaster
from svc.store.postgres.migrate import SchemaDiffers, SchemaTooNew, migrations, steps_ahead
from svc.store.reads.questions.attributes import AttributeReads
from svc.store.replicas.notices import hears_itself
from svc.store.spans.exporters import ExporterStore

TIMEOUT_S = 5.0


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Checks the configuration and everything the service depends on. With --project: shows who sends\n"
        "spans to the project, how well they are understood, and what to change.\n\n"
        "Exit status: 0 if all is well, warnings included; 1 if any line says FAIL."
    )
    parser.add_argument("--org", default=DEFAULT_ORG, help="organization (default: %(default)s)")
    parser.add_argument("--project", help="check what the exporters of this project send")
    parser.add_argument(
        "--days",
        type=int,
        choices=range(1, 31),
        default=7,
        metavar="N",
        help="over the last N days (default: 7)",
    )
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


async def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print what was seen. Returns the exit status."""
    if arguments.project is None:
        return await _examine(settings, os.environ, as_json=arguments.json)
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        place = f"--org {project.org_slug} --project {project.slug}"
        report = await ExporterStore(store.database).report(project.id, now(), arguments.days, place)
        fields = await AttributeReads(store.database).fields(project.id)
        if arguments.json:
            print_json({"report": report, "attributes": fields})
            return 0
        print_report(report)
        print_attributes(fields)
    return 0


async def _examine(settings: Settings, env: Mapping[str, str], *, as_json: bool) -> int:
    findings = await examined(settings, env)
    if as_json:
        print_json(findings)
    for finding in () if as_json else findings:
        print(printable(finding.line()))
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
    yield Finding("ok", "version", f"trace-svc {release()}")
    as_meant, sentence = compiled()
    yield Finding("ok" if as_meant or not settings.compiled_modules else "warn", "modules", sentence)
    names = sorted(row.name for row in setting_rows() if row.name in env)
    yield Finding("ok", "settings", "set: " + (", ".join(names) or "none, all defaults"))
    try:
        settings = with_own_secrets(settings, env)
    except BadSetting as error:
        yield Finding("FAIL", "secrets", str(error))
    except OSError as error:
        path = Path(os.fsdecode(error.filename or settings.data_dir))
        yield Finding("FAIL", "secrets", path_refusal(path, error, "SVC_DATA_DIR"))
    absent = set()
    for name, path in kept_here(settings, env).items():
        # One that may not be looked for is told of above.
        with suppress(PermissionError):
            if not path.exists():
                absent.add(name)
            where = f"will be created in {path} at the first start" if name in absent else f"in {path}"
            yield Finding("ok", "secrets", f"{name} {where}")
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
    on_disk = settings.spool_mode == "disk"
    if served_address(settings) is not None and not on_disk:
        return
    folder: Path = settings.data_dir
    parts = ("postgres", "secrets", *(["spool"] if on_disk else []))
    obstacles = (obstacle(folder / part / "file") for part in parts)
    fault = next((fault for fault in obstacles if fault is not None), None)
    if fault is not None:
        yield Finding("FAIL", "data", fault.text("SVC_DATA_DIR"))
    elif not folder.exists():
        yield Finding("ok", "data", f"{folder} will be created at the first start")
    else:
        yield Finding("ok", "data", f"{folder} exists")


def _embedded(settings: Settings) -> list[Finding]:
    findings = [Finding("ok", "database", "embedded PostgreSQL, run by the service")]
    home = settings.data_dir / "postgres"
    try:
        old = older_data(home)
    except EmbeddedServerError as newer:
        return [*findings, Finding("FAIL", "database", str(newer))]
    if old is not None:
        text = f"{old} is for PostgreSQL {old.parent.name}: the next start upgrades it to {MAJOR}"
        findings.append(Finding("warn", "database", f"{text}, and keeps a copy"))
    majors = majors_in(home)
    if MAJOR in majors:
        older_homes = [home / major for major in majors if int(major) < int(MAJOR)]
        findings += [
            Finding(
                "warn",
                "database",
                f"{path} is of an older PostgreSQL: `trace-svc upgrade --finish` removes it",
            )
            for path in older_homes
        ]
    return findings


async def _database(settings: Settings) -> list[Finding]:
    address = served_address(settings)
    if address is None:
        return [*_embedded(settings), *await _embedded_schema(settings)]

    async with open_store(settings, as_it_is=True) as store:
        try:
            (row,) = await store.database.fetch("show server_version", timeout_s=TIMEOUT_S)
            hears = await hears_itself(store.database)
            schema = await _schema(store.database)
            clients = await _clients(store.database, schema)
        except Outage as outage:
            return [Finding("FAIL", "database", f"{address.label()}: {outage}")]
    notices = Finding("ok", "notices", "notifications between copies arrive")
    if not hears:
        text = (
            "notifications (LISTEN) do not arrive: a transaction pooler is in front of the database;"
            " connect without it"
        )
        notices = Finding("FAIL", "notices", text)
    version = f"{address.label()} runs PostgreSQL {row['server_version']}"
    findings = [Finding("ok", "database", version), schema, notices]
    return [*findings, *clients, *await _replica(settings)]


async def _embedded_schema(settings: Settings) -> list[Finding]:
    """The schema of an embedded server that runs; a look starts none."""
    if read_postmaster(settings.data_dir / "postgres" / MAJOR / "data") is None:
        return []
    try:
        async with open_store(settings, as_it_is=True) as store:
            schema = await _schema(store.database)
            return [schema, *await _clients(store.database, schema)]
    except (EmbeddedServerError, Outage) as error:
        return [Finding("FAIL", "database", str(error))]


async def _schema(database: Database) -> Finding:
    """How far the schema has come, or why this release cannot bring it further. Raises `Outage`."""
    try:
        applied, ahead = await steps_ahead(database)
    except (SchemaTooNew, SchemaDiffers) as refusal:
        return Finding("FAIL", "schema", str(refusal))
    if not applied:
        return Finding("ok", "schema", "none yet; the first start creates it")
    reached = f"at step {max(applied)} of {migrations()[-1].number}"
    if ahead:
        text = f"{reached}, {counted(len(ahead), 'step')} pending: rehearse with `trace-svc upgrade --check`"
        return Finding("ok", "schema", text)
    return Finding("ok", "schema", reached)


async def _clients(database: Database, schema: Finding) -> list[Finding]:
    """Exporters that renamed a key since yesterday; nothing on a schema that is not this release's."""
    if not schema.text.startswith("at step") or "ahead" in schema.text:
        return []
    return [
        Finding(
            "warn",
            "clients",
            f"{service or 'a service without name'} in {org}/{project}:"
            f" {rename_text(rename, f'--org {org} --project {project}')}",
        )
        for org, project, service, rename in await ExporterStore(database).renamed(now())
    ]


async def _replica(settings: Settings) -> list[Finding]:
    """The replica as it looks from here; how far it is behind the service knows."""
    address = replica_address(settings)
    if address is None:
        return []
    async with asyncio_loop(AWAY), Database(address, pool_size=1).opened() as database:
        try:
            (row,) = await database.fetch("select pg_is_in_recovery() as follows", timeout_s=TIMEOUT_S)
        except Outage as outage:
            return [Finding("warn", "replica", f"{address.label()}: {outage}; the primary is used")]
    if not row["follows"]:
        text = f"{address.label()} does not follow another server: it is not a replica"
        return [Finding("FAIL", "replica", text)]
    return [Finding("ok", "replica", f"{address.label()} follows another server")]


async def _brokers(settings: Settings) -> list[Finding]:
    if settings.spool_mode != "kafka":
        return []
    servers = settings.kafka_bootstrap_servers
    try:
        with trio.fail_after(TIMEOUT_S):
            description = await trio.to_thread.run_sync(described, settings, abandon_on_cancel=True)
    except (Outage, trio.TooSlowError) as error:
        return [Finding("FAIL", "brokers", f"{servers}: {error}")]
    return [Finding("ok", "brokers", f"{servers}: {description}")]


async def _service(settings: Settings) -> list[Finding]:
    url = own_url(settings)
    try:
        with trio.fail_after(TIMEOUT_S):
            async with asking(url, settings, timeout_s=TIMEOUT_S) as client:
                report = (await client.get("/actuator/health")).json()
                mode = (await client.get("/auth/mode")).json()
    except (httpx2.HTTPError, trio.TooSlowError, OSError, ValueError):
        return [Finding("warn", "service", f"the service does not answer at {url}; is it running?")]
    if not isinstance(report, dict) or "components" not in report:
        return [Finding("FAIL", "service", f"another program answers at {url}")]
    findings = []
    for name, part in report["components"].items():
        findings.append(_component(name, part, url))
    return [
        *findings,
        *certificate_findings(report["components"]),
        *_refused(report["components"]),
        *_signals(report["components"]),
        *_log_records(report["components"]),
        *_sign_up(settings, mode),
    ]


def _component(name: str, part: Mapping[str, Any], url: str) -> Finding:
    status = part.get("status")
    if status == "DEGRADED":
        return Finding("warn", name, f"DEGRADED at {url}: {part.get('details', {}).get('fault', '')}")
    return Finding("ok" if status == "UP" else "FAIL", name, f"{status} at {url}")


def _refused(components: Mapping[str, Any]) -> list[Finding]:
    """Exports that the running service refused in the last minutes, a line for each cause."""
    causes = components.get("ingest", {}).get("details", {}).get("refused_lately", [])
    return [
        Finding(
            "warn",
            "refused",
            f"{cause['count']} recently with {cause['status']}: {cause['message']} ({cause['cause']})",
        )
        for cause in causes
    ]


def _signals(components: Mapping[str, Any]) -> list[Finding]:
    """Metrics and logs that somebody sends though they are refused."""
    signals = components.get("ingest", {}).get("details", {}).get("refused_signals", [])
    return [
        Finding(
            "warn",
            "signals",
            f"{signal['signal']} are sent here and rejected, {counted(signal['count'], 'request')} since the"
            f" start: {signal['remedy']}",
        )
        for signal in signals
    ]


def _log_records(components: Mapping[str, Any]) -> list[Finding]:
    """What became of log records, where they are accepted."""
    records = components.get("ingest", {}).get("details", {}).get("log_records")
    if records is None:
        return []
    reasons = "; ".join(f"{reason} ({count})" for reason, count in records["reasons"].items())
    return [
        Finding(
            "ok",
            "logs",
            f"{counted(records['taken'], 'log record')} accepted since the start: {records['spans']} became"
            f" spans, {records['refused']} over a quota, {records['dropped']} dropped"
            + (f": {reasons}" if reasons else "")
            + f"; {counted(records['data_points_dropped'], 'data point')} of metrics dropped",
        )
    ]


def _sign_up(settings: Settings, response: Any) -> list[Finding]:
    """Who may sign up, as the running service says it (`GET /auth/mode`); nothing while it cannot say."""
    try:
        signing = msgspec.convert(response["data"], Mode)
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
