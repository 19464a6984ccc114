"""`trace-svc restore DIR|s3://…`: bring a backup back into an empty database, here or elsewhere.

Embedded and served, and the majors of PostgreSQL, may differ from those of the backup. Cut off, it is run
again.
"""

from __future__ import annotations

import argparse
import os
import shutil
from datetime import UTC, datetime
from typing import Literal

import trio

from protocol.backup import BackupRefused, Manifest
from svc.application.brokers import set_back
from svc.application.open_store import open_store
from svc.backup.erased import FILE, ErasedNotes
from svc.backup.folder import BackupFolder, read_manifest
from svc.backup.physical import replay_of, restore_physical
from svc.backup.restoring import Restored, box_of, restore
from svc.backup.wal_folder import listing_of
from svc.commands import remote_backup as remote
from svc.commands.terminal import Teller, offer_json, print_json
from svc.config.table import Settings, read_settings
from svc.domain.quantities import count, counted, duration
from svc.store.accounts.audit import OPERATOR
from svc.store.backup.loading import without
from svc.store.postgres.embedded.physical import Replay
from svc.store.retention.erased_again import ErasedAgain
from svc.store.retention.erasing import Erasing


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Fills an empty database from the newest backup in DIR, or from the one given by --at. By default\n"
        "this is the database of your settings; with --into another one (to move from the embedded database\n"
        "to a server, or between servers). A --physical backup needs an empty SVC_DATA_DIR; with the WAL\n"
        "that SVC_BACKUP_WAL_SECONDS keeps, --until brings back any moment after it. Secrets need\n"
        "SVC_BACKUP_PASSPHRASE and go to SVC_DATA_DIR, as do batches of disk mode.\n"
        "A backup in S3 is fetched into a folder beside SVC_DATA_DIR, which is removed after the restore."
    )
    parser.add_argument(
        "dir", metavar="DIR", help="the folder of backups, or where they are: s3://BUCKET/PREFIX"
    )
    parser.add_argument(
        "--into", metavar="URL", help="fill this database: postgresql://user:password@host/name"
    )
    parser.add_argument(
        "--at", metavar="STAMP", help="a backup from `trace-svc backup list` (default: the newest)"
    )
    parser.add_argument(
        "--until",
        type=moment,
        metavar="TIME",
        help="bring back this moment, by the WAL after a --physical backup: 2026-11-01T12:30:00Z, or latest",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="TABLE",
        help="leave out this table; can be repeated",
    )
    parser.add_argument("--without-secrets", action="store_true", help="leave out the secrets")
    offer_json(parser)


def moment(text: str) -> datetime | Literal["latest"]:
    """A time with its zone, or the latest there is."""
    if text == "latest":
        return "latest"
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; expected one such as 2026-11-01T12:30:00Z, or latest"
        ) from None
    if instant.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; for UTC, write {text}Z")
    return instant


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Restore. Raises `BackupRefused`, `BackupDamaged`, `Outage`, `OSError`."""
    if arguments.until is not None and arguments.at is not None:
        raise BackupRefused("--at names a backup and --until a moment: choose one of them")
    until = None if arguments.until == "latest" else arguments.until
    if not remote.is_remote(arguments.dir):
        folder = remote.checked_folder(arguments.dir)
        if arguments.until is None:
            await _restore(folder, folder.chosen(arguments.at), arguments, settings)
            return
        manifests = [read_manifest(path) for path in folder.manifests()]
        span = listing_of(folder).chosen(manifests, until)
        replay = replay_of(folder, span, until, Teller())
        await _restore(folder, span.manifest, arguments, settings, replay)
        return
    fetched = await remote.fetch_beside(
        settings,
        arguments.dir,
        arguments.at,
        by_wal=arguments.until is not None,
        until=until,
        elsewhere=arguments.into is not None,
    )
    folder, manifest, fetched_span = fetched
    replay_ = None if fetched_span is None else replay_of(folder, fetched_span, until, Teller())
    await _restore(folder, manifest, arguments, settings, replay_)
    await trio.to_thread.run_sync(shutil.rmtree, folder.root)


async def _restore(
    folder: BackupFolder,
    manifest: Manifest,
    arguments: argparse.Namespace,
    settings: Settings,
    replay: Replay | None = None,
) -> None:
    if manifest.physical is None:
        manifest = without(manifest, arguments.without)
    secrets = {}
    if not arguments.without_secrets:
        secrets = box_of(folder, manifest, settings.backup_passphrase, needed=True)
    if manifest.physical is not None:
        _check_place(arguments, settings)
    if arguments.into is not None:
        # Read like any other setting, so that a bad one is refused without being shown.
        settings = read_settings({**os.environ, "SVC_JDBC_URL": arguments.into})
    again = rows = None
    if settings.spool_mode == "kafka":
        # Harmless when the restore is refused after it: what is stored already is stored once.
        snapshot_at = manifest.origin.snapshot_at
        again = await trio.to_thread.run_sync(
            set_back, settings, snapshot_at, Teller().say, abandon_on_cancel=True
        )
    if manifest.physical is not None:
        notes = await restore_physical(folder, manifest, settings.data_dir, secrets, Teller(), replay)
        async with open_store(settings) as store:
            label = store.database.address.label()
        forward = "" if replay is None else f" and everything after it{_until(arguments.until)}"
        lines = [f"restored backup {manifest.stamp}{forward} into {label}", *notes]
        lines += _waiting(manifest, settings)
    else:
        rows, lines = await _filled(folder, manifest, settings, secrets)
    lines += await _erased_again(folder, settings)
    if arguments.json:
        print_json({"backup": manifest.stamp, "rows": rows, "notes": lines, "messages_read_again": again})
        return
    for line in lines:
        print(line)
    if again is not None:
        print(f"{again} messages since an hour before the snapshot will be read again at the next start")


def _until(until: datetime | str) -> str:
    return "" if isinstance(until, str) else f" until {until.isoformat()}"


async def _erased_again(folder: BackupFolder, settings: Settings) -> list[str]:
    """Erase what was erased since the backup was made; what to say about it."""
    folders = (folder.root, *ErasedNotes.of(settings).folders)
    notes = ErasedNotes(tuple(dict.fromkeys(folder.resolve() for folder in folders))).all()
    if not notes:
        return []
    async with open_store(settings) as store:
        erasures = await ErasedAgain(store.database).ask(notes, OPERATOR, datetime.now(UTC))
        erasing = Erasing(store.database)
        for project_id in await erasing.projects():
            while await erasing.step(project_id) is not None:
                pass
    return [
        f"erased again: {counted(erasures, 'trace, session or user', 'traces, sessions and users')} of"
        f" {counted(len(notes), 'note')} in {FILE}"
    ]


def _check_place(arguments: argparse.Namespace, settings: Settings) -> None:
    if arguments.into is not None or not settings.embedded:
        raise BackupRefused(
            "it is a --physical backup, a copy of the embedded database, and needs a data folder; restore"
            " it there, then move the data with a normal backup"
        )
    if arguments.without:
        raise BackupRefused("a --physical backup is restored as a whole: --without does not apply")


async def _filled(
    folder: BackupFolder, manifest: Manifest, settings: Settings, secrets: dict[str, bytes]
) -> tuple[int, list[str]]:
    """How many rows there are now, and what to say about it."""
    async with open_store(settings, as_it_is=True) as store:
        label = store.database.address.label()
        restoration = await restore(folder, manifest, store.database, settings.data_dir, secrets, Teller())
    return restoration.rows, _summary(restoration, manifest, settings, label)


def _summary(restoration: Restored, manifest: Manifest, settings: Settings, label: str) -> list[str]:
    lines = [
        f"restored backup {manifest.stamp} into {label}: {count(restoration.rows)} rows"
        f" in {duration(restoration.took_s * 1000)}",
        *restoration.notes,
    ]
    if restoration.steps:
        lines.append(f"the schema was migrated: {restoration.steps} steps newer than the backup")
    lines += _waiting(manifest, settings)
    if not settings.embedded:
        lines.append(
            f"start the service on it with SVC_JDBC_URL, and SVC_SECRET_KEY and SVC_AUTH_COOKIE_PASSWORD as"
            f" {'in ' + str(settings.data_dir / 'secrets') if manifest.secrets else 'before'}"
        )
    return lines


def _waiting(manifest: Manifest, settings: Settings) -> list[str]:
    lines = []
    if manifest.spool is not None and manifest.spool.batches:
        lines.append(
            f"{manifest.spool.batches} batches wait in {settings.data_dir / 'spool'}: a start with"
            " SVC_INGEST_SPOOL_MODE=disk stores them"
        )
    if manifest.spool_mode == "kafka" and settings.spool_mode != "kafka":
        lines.append("kafka mode is off here: what arrived in the topic after the snapshot is not read")
    return lines
