"""Wiring of an import: whom to ask with which credentials, and the store it goes to.

Credentials come from the variables by which the other product's own clients know them; they are no settings
of this service, and a command line would show them to everybody on the machine.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs

from protocol.operator import OperatorError
from svc.config.table import Settings
from svc.domain.intake import decoder
from svc.domain.retention import cutoffs
from svc.importers.exported import ExportedFile
from svc.importers.langfuse import LangfuseProject
from svc.importers.langfuse_files import LangfuseFiles
from svc.importers.mlflow import MlflowExperiment
from svc.importers.moving import HistoryMove
from svc.importers.phoenix import PhoenixProject
from svc.importers.source import Source
from svc.ingest.prices import price_book
from svc.outside.history import HistoryClient
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DayPartitions
from svc.store.retention.sweep import read_override
from svc.store.spans.importing import ImportStore
from svc.wiring.keeping import default_terms
from svc.wiring.spools import ingest_limits

#: What an import may come from, and what the service of its spans is called when nobody says.
PRODUCTS: Final = ("phoenix", "mlflow", "langfuse", "export")


@attrs.frozen
class ImportOrder:
    """What somebody asked to have moved in."""

    product: str
    place: str
    source_project: str | None
    service: str
    low: datetime | None
    high: datetime | None

    def journal_name(self, project_id: int) -> str:
        """The name of its journal: the same for the same order."""
        said = repr((attrs.astuple(self), project_id)).encode()
        return f"{self.product}-{hashlib.sha256(said).hexdigest()[:16]}.sqlite"


def source_of(order: ImportOrder, env: Mapping[str, str]) -> AbstractContextManager[Source]:
    """The source of an order, open. Raises `OperatorError` and `OSError`."""
    return ExportedFile.at(order.place) if order.product == "export" else nullcontext(_product(order, env))


def _product(order: ImportOrder, env: Mapping[str, str]) -> Source:
    match order.product:
        case "phoenix":
            token = env.get("PHOENIX_API_KEY")
            client = _client(order.place, _bearer(token), "PHOENIX_API_KEY")
            return PhoenixProject(client, order.source_project or "default", order.service)
        case "mlflow":
            names = "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            user = env.get("MLFLOW_TRACKING_USERNAME")
            headers = _bearer(env.get("MLFLOW_TRACKING_TOKEN")) or (
                _basic(user, env.get("MLFLOW_TRACKING_PASSWORD", "")) if user else {}
            )
            client = _client(order.place, headers, names)
            return MlflowExperiment(client, order.source_project or "0", order.service)
        case "langfuse" if not _is_url(order.place):
            return LangfuseFiles(Path(order.place), order.service)
        case "langfuse":
            public, secret = env.get("LANGFUSE_PUBLIC_KEY"), env.get("LANGFUSE_SECRET_KEY")
            if not public or not secret:
                raise OperatorError(
                    "Langfuse wants the keys of a project: set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"
                )
            names = "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"
            return LangfuseProject(_client(order.place, _basic(public, secret), names), order.service)
        case other:
            raise AssertionError(other)


def _is_url(place: str) -> bool:
    return urlsplit(place).scheme in ("http", "https")


def _client(place: str, headers: Mapping[str, str], credentials: str) -> HistoryClient:
    if not _is_url(place) or not urlsplit(place).hostname:
        raise OperatorError(f"{place!r} is no address; expected one like http://127.0.0.1:6006")
    return HistoryClient(place, headers, credentials)


def _bearer(token: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def _basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


async def mover(
    settings: Settings,
    database: Database,
    project_id: int,
    source: Source,
    now: Callable[[], datetime],
    *,
    spans_a_s: float,
    dry: bool,
) -> HistoryMove:
    """What moves an order's source into a project; a `dry` one stores nothing. Raises `Outage`."""

    async def expired_before(connection: Connection) -> datetime | None:
        terms = (await read_override(connection, project_id)).over(default_terms(settings))
        return cutoffs(terms, now()).traces

    days = DayPartitions(database, settings.trace_ttl_days)
    return HistoryMove(
        project_id=project_id,
        source=source,
        decode=decoder(price_book(settings.prices_file)),
        shelf=None if dry else ImportStore(database, days),
        limits=ingest_limits(settings),
        expired_before=await database.run(expired_before, readonly=True)
        if settings.retention_enabled
        else None,
        now=now,
        spans_a_s=spans_a_s,
    )
