"""Moving history in from another product: whom to ask with which credentials, and the store it goes to.

`trace-svc import` calls it. Credentials come from the variables by which the other product's own clients know
them; they are no settings of this service, and a command line would show them to everybody on the machine.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs
import trio

from protocol.operator import OperatorError
from svc.application.bounds import default_terms, ingest_limits
from svc.config.table import Settings
from svc.domain.attributes.reading import AttributeReader
from svc.domain.intake.batches import decoder
from svc.domain.intake.masking import Masker
from svc.domain.quantities import percent, size
from svc.domain.retention.disk_budget import level_of
from svc.domain.retention.terms import cutoffs
from svc.importers.exported import ExportedFile
from svc.importers.langfuse import LangfuseProject
from svc.importers.langfuse_files import LangfuseFiles
from svc.importers.mlflow import MlflowExperiment
from svc.importers.moving import HistoryMove
from svc.importers.parquet import ParquetExport, is_parquet
from svc.importers.phoenix import PhoenixProject
from svc.importers.source import Source
from svc.importers.transcripts import TranscriptFolder
from svc.ingest.prices import price_book
from svc.outside.history import HistoryClient
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DayPartitions
from svc.store.retention.disk_use import PostgresDiskStore
from svc.store.retention.sweep import read_override
from svc.store.spans.attribute_keys import AttributeKeys
from svc.store.spans.importing import PostgresImportStore
from svc.store.spans.masking import MaskingStore
from svc.store.spans.project_prices import ProjectPriceStore

#: An import adds some tens of MiB in so long.
LOOK_S: Final = 2.0
#: What an import may come from, and what the service of its spans is called when nobody says.
PRODUCTS: Final = ("phoenix", "mlflow", "langfuse", "claude-code", "codex", "export")


@attrs.frozen
class ImportOrder:
    """What somebody asked to have moved in."""

    product: str
    place: str
    source_project: str | None
    service: str
    low: datetime | None
    high: datetime | None
    #: Who the sessions of a coding agent are of, when somebody says so.
    user: str | None = None

    def journal_name(self, project_id: int) -> str:
        """The name of its journal: the same for the same order."""
        identity = repr((attrs.astuple(self), project_id)).encode()
        return f"{self.product}-{hashlib.sha256(identity).hexdigest()[:16]}.sqlite"


def source_of(
    order: ImportOrder, env: Mapping[str, str], tell: Callable[[str], object]
) -> AbstractContextManager[Source]:
    """The source of an order, open; `tell` hears what it waits for. Raises `OperatorError` and `OSError`."""
    if order.product != "export":
        return nullcontext(_product(order, env, tell))
    path = Path(order.place)
    if order.place != "-" and is_parquet(path):
        return nullcontext(ParquetExport(path))
    return ExportedFile.at(order.place)


def _product(order: ImportOrder, env: Mapping[str, str], tell: Callable[[str], object]) -> Source:
    def client(headers: Mapping[str, str], credentials: str) -> HistoryClient:
        if not _is_url(order.place) or not urlsplit(order.place).hostname:
            raise OperatorError(f"{order.place!r} is no address; expected one like http://127.0.0.1:6006")
        return HistoryClient(order.place, headers, credentials, tell=tell)

    match order.product:
        case "phoenix":
            token = env.get("PHOENIX_API_KEY")
            http = client(_bearer(token), "PHOENIX_API_KEY")
            return PhoenixProject(http, order.source_project or "default", order.service)
        case "mlflow":
            names = "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            user = env.get("MLFLOW_TRACKING_USERNAME")
            headers = _bearer(env.get("MLFLOW_TRACKING_TOKEN")) or (
                _basic(user, env.get("MLFLOW_TRACKING_PASSWORD", "")) if user else {}
            )
            return MlflowExperiment(client(headers, names), order.source_project or "0", order.service)
        case "claude-code" | "codex":
            return TranscriptFolder.at(
                order.product, Path(order.place).expanduser(), order.service, order.user
            )
        case "langfuse" if not _is_url(order.place):
            return LangfuseFiles(Path(order.place), order.service)
        case "langfuse":
            public, secret = env.get("LANGFUSE_PUBLIC_KEY"), env.get("LANGFUSE_SECRET_KEY")
            if not public or not secret:
                raise OperatorError(
                    "Langfuse wants the keys of a project: set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"
                )
            names = "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"
            return LangfuseProject(client(_basic(public, secret), names), order.service)
        case other:
            raise AssertionError(other)


def _is_url(location: str) -> bool:
    return urlsplit(location).scheme in ("http", "https")


def _bearer(token: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def _basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


@attrs.define(eq=False)
class DiskRoom:
    """Whether an import may go on under the disk budget, as ingest may. Measures at most so often."""

    budget_bytes: int
    store: PostgresDiskStore
    tell: Callable[[str], object]
    _level: str = "ok"
    _next_s: float = -inf

    async def check(self) -> None:
        """Warn near the budget. Raises `OperatorError` when it is reached, and `Outage`."""
        if trio.current_time() < self._next_s:
            return
        used = (await self.store.measure()).total
        self._next_s = trio.current_time() + LOOK_S
        budget = f"the disk budget of {size(self.budget_bytes)}"
        share = f"{percent(used / self.budget_bytes)} of {budget} is used"
        if used >= self.budget_bytes:
            raise OperatorError(
                f"{share}: nothing more is taken in; make room or raise SVC_DISK_BUDGET_BYTES, then give the"
                " same command again, and it goes on where it was"
            )
        level, previous = level_of(used, self.budget_bytes), self._level
        self._level = level
        if level == previous:
            return
        if level == "drop":
            self.tell(f"{share}: the service drops its oldest days now, which may be those that come in")
        elif level == "tell":
            self.tell(f"{share}; at 100 % this import ends")


async def mover(
    settings: Settings,
    database: Database,
    project_id: int,
    source: Source,
    now: Callable[[], datetime],
    *,
    spans_a_s: float,
    dry: bool,
    tell: Callable[[str], object],
) -> HistoryMove:
    """What moves an order's source into a project; a `dry` one stores nothing. Raises `Outage`.

    `tell` hears what is to be said about the disk and the database meanwhile.
    """

    async def expired_before(connection: Connection) -> datetime | None:
        terms = (await read_override(connection, project_id)).over(default_terms(settings))
        return cutoffs(terms, now()).traces

    fields = AttributeReader()
    fields.adopt((await AttributeKeys(database).states()).promoted)
    masker = Masker()
    masker.adopt(await MaskingStore(database).every_rule())
    prices = price_book(settings.prices_file)
    prices.adopt_projects(await ProjectPriceStore(database).every())
    days = DayPartitions(database, settings.trace_ttl_days)
    room = DiskRoom(
        settings.disk_budget_bytes, PostgresDiskStore(database, settings.data_dir / "spool"), tell
    )
    return HistoryMove(
        project_id=project_id,
        source=source,
        decode=decoder(prices, fields=fields, masker=masker),
        store=None if dry else PostgresImportStore(database, days),
        limits=ingest_limits(settings),
        expired_before=await database.run(expired_before, readonly=True)
        if settings.retention_enabled
        else None,
        now=now,
        spans_a_s=spans_a_s,
        room=room.check if settings.disk_budget_bytes else None,
        tell=tell,
    )
