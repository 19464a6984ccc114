"""`trace-svc backup DIR`, and its verbs `verify`, `list`, `prune`, `push` and `fetch`.

Works beside the running service. What it leaves out, and what is missing for a restore, it says.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from protocol.backup import BackupRefused, Manifest
from svc.application.open_store import open_store
from svc.backup.folder import BackupFolder, read_manifest
from svc.backup.physical import take_physical
from svc.backup.restoring import check_files
from svc.backup.taking import TakenBackup, take
from svc.backup.verifying import verify
from svc.backup.wal_folder import WalListing, check_wal, covered, listing_of, prune_wal
from svc.commands import remote_backup as remote
from svc.commands.terminal import Teller, offer_json, print_columns, print_json
from svc.config.table import Settings
from svc.domain.quantities import count, duration, size
from svc.runtime.asyncio_loop import asyncio_loop
from svc.store.postgres.database import AWAY

VERBS: Final = ("verify", "list", "prune", "push", "fetch")
#: Ingest and questions come first.
_NICENESS: Final = 10


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their options."""
    parser.usage = (
        "trace-svc backup DIR [--full] [--physical]\n"
        "       trace-svc backup verify DIR [--at STAMP] [--digests] [--scratch DIR]\n"
        "       trace-svc backup list DIR|s3://BUCKET/PREFIX\n"
        "       trace-svc backup prune DIR|s3://BUCKET/PREFIX --keep N\n"
        "       trace-svc backup push DIR [s3://BUCKET/PREFIX] [--keep N]\n"
        "       trace-svc backup fetch s3://BUCKET/PREFIX DIR [--at STAMP]"
    )
    parser.description = (
        "Backs up the database, the batches of disk mode and, with SVC_BACKUP_PASSPHRASE, the secrets,\n"
        "while the service is running. Files that have not changed since the last backup are reused.\n"
        "`verify` compares checksums, restores to a scratch server and queries it. `prune` keeps the newest\n"
        "N backups. `push` copies the backups in a folder to S3, by default to SVC_BACKUP_S3_URL; only new\n"
        "files are sent. `fetch` brings the newest backup, or that of --at, back into a folder.\n"
        "--physical copies the files of a large embedded database, and later only what changed in them:\n"
        "faster to restore, but only with the same PostgreSQL on the same kind of machine."
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="[verify|list|prune|push|fetch] DIR",
        help="the folder of backups, or where they are in S3",
    )
    parser.add_argument("--full", action="store_true", help="also copy what has not changed")
    parser.add_argument("--physical", action="store_true", help="copy the embedded database file by file")
    parser.add_argument("--keep", type=int, metavar="N", help="prune, push: how many backups to keep")
    parser.add_argument(
        "--at", metavar="STAMP", help="verify, fetch: this backup from the list (default: the newest)"
    )
    parser.add_argument(
        "--digests", action="store_true", help="verify: compare checksums only, no trial restore"
    )
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="verify: folder for the trial restore")
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `BackupRefused`, `BackupDamaged`, `Outage`, `OSError`."""
    verb, words = _verb_and_words(arguments)
    with suppress(OSError):
        os.nice(_NICENESS)
    as_json = arguments.json
    match verb, *words:
        case "push", source, *url:
            folder = remote.checked_folder(source)
            await remote.push_backups(settings, folder, *url, keep=arguments.keep, as_json=as_json)
        case "fetch", url, destination:
            folder = remote.checked_folder(destination)
            await remote.fetch_backup(
                settings, remote.checked_url(url), folder, arguments.at, as_json=as_json
            )
        case "list", place if remote.is_remote(place):
            _list(place, *await remote.list_backups(settings, place), as_json=as_json)
        case "list", place:
            folder = remote.checked_folder(place)
            if not folder.root.is_dir():
                raise BackupRefused(f"there is no folder {place}")
            manifests = [read_manifest(path) for path in folder.manifests()]
            _list(place, manifests, listing_of(folder), as_json=as_json)
        case "prune", place:
            await _prune(settings, place, arguments.keep, as_json=as_json)
        case "verify", place:
            await _verify(remote.checked_folder(place), arguments, settings)
        case _:
            await _take(remote.checked_folder(words[0]), settings, arguments)


def _verb_and_words(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    words: list[str] = arguments.words
    verb, places = (words[0], words[1:]) if words[0] in VERBS else ("", words)
    if verb and not places:
        raise BackupRefused(f"which folder? For a folder named {verb}, write ./{verb}")
    least, most = {"push": (1, 2), "fetch": (2, 2)}.get(verb, (1, 1))
    if not least <= len(places) <= most:
        raise BackupRefused(f"expected [{'|'.join(VERBS)}] and one folder; see trace-svc backup --help")
    return verb, places


async def _take(folder: BackupFolder, settings: Settings, arguments: argparse.Namespace) -> None:
    full, physical = arguments.full, arguments.physical
    async with open_store(settings, as_it_is=True) as store:
        if not physical:
            backup = await take(settings, store.database, folder, full=full, told=Teller())
        elif store.embedded is not None:
            backup = await take_physical(
                settings, store.database, store.embedded, folder, full=full, told=Teller()
            )
        else:
            raise BackupRefused(
                "--physical copies the embedded database, and yours is a server of its own: leave it out, or "
                "use the tools of that server (pg_basebackup, snapshots)"
            )
    if arguments.json:
        made = {
            "new_files": backup.new_files,
            "new_bytes": backup.new_bytes,
            "unchanged_files": backup.kept_files,
            "took_s": backup.manifest.took_s,
            "notes": _notes(backup.manifest),
        }
        print_json(_facts(backup.manifest) | made)
        return
    for line in summary(backup):
        print(line)


def _facts(manifest: Manifest) -> dict[str, Any]:
    """What is shown of a backup; rows of a physical one are not known."""
    physical = manifest.physical is not None
    return {
        "backup": manifest.stamp,
        "physical": physical,
        "rows": None if physical else sum(relation.fingerprint.rows for relation in manifest.relations),
        "bytes": sum(file.bytes for file in manifest.files()),
        "secrets": manifest.secrets is not None,
        "release": manifest.release,
        "wal_until": None,
    }


def summary(backup: TakenBackup) -> list[str]:
    """What was made, and what is not in it."""
    manifest = backup.manifest
    total = size(sum(file.bytes for file in manifest.files()))
    new = f"new: {backup.new_files} files, {size(backup.new_bytes)}"
    if manifest.physical is not None:
        parts = len(manifest.physical.parts)
        extent = (
            "a full copy" if parts == 1 else f"what changed since the last backup, part {parts} of {parts}"
        )
        lines = [f"backup {manifest.stamp}: {extent}, {total} together"]
    else:
        rows = sum(relation.fingerprint.rows for relation in manifest.relations)
        lines = [f"backup {manifest.stamp}: {count(rows)} rows in {len(manifest.relations)} tables, {total}"]
    lines.append(f"{new}; unchanged: {backup.kept_files} files; took {duration(manifest.took_s * 1000)}")
    return lines + _notes(manifest)


def _notes(manifest: Manifest) -> list[str]:
    """What waits for a restore, and what is not in it."""
    lines = []
    if manifest.spool is not None and manifest.spool.batches:
        lines.append(f"spool: {manifest.spool.batches} batches with {manifest.spool.spans} spans")
    if manifest.spool_mode == "memory":
        lines.append("memory mode: spans that were accepted but not yet stored are not in the backup")
    if manifest.spool_mode == "kafka":
        lines.append("kafka mode: what waits in the topic is not in the backup; it stays with the brokers")
    if manifest.secrets is None:
        lines.append(
            "secrets: NOT in the backup, because SVC_BACKUP_PASSPHRASE is not set; without the encryption"
            " key, encrypted values cannot be read after a restore"
        )
    return lines


async def _verify(folder: BackupFolder, arguments: argparse.Namespace, settings: Settings) -> None:
    manifest = folder.chosen(arguments.at)
    teller = Teller()
    span = listing_of(folder).span_after(manifest)
    segments = 0 if span is None else await trio.to_thread.run_sync(check_wal, folder, span, teller)
    if arguments.digests:
        files = segments + await check_files(folder, manifest, teller)
        if arguments.json:
            print_json({"backup": manifest.stamp, "good": True, "tried_out": False, "files": files})
            return
        print(f"backup {manifest.stamp}: {files} files are unchanged; not restored")
        if span is not None:
            print(covered([span]))
        return
    async with asyncio_loop(AWAY):
        proof = await verify(folder, manifest, settings.backup_passphrase, arguments.scratch, teller)
    if arguments.json:
        print_json({"backup": manifest.stamp, "good": True, "tried_out": True} | attrs.asdict(proof))
        return
    print(f"backup {manifest.stamp} is good: restored on a scratch server and queried")
    rows, spans = count(proof.rows), count(proof.spans)
    print(f"{proof.files} files, {rows} rows, {spans} spans counted by rows and by cubes")
    if span is not None:
        print(f"{count(segments)} segments of the WAL are unchanged: {covered([span])}")
    print(f"{proof.payloads} payloads and {proof.sealed} encrypted values read")
    if proof.sealed_unseen:
        print("encrypted values were not checked: that needs SVC_BACKUP_PASSPHRASE and a backup made with it")


def _list(place: str, manifests: Sequence[Manifest], wal: WalListing, *, as_json: bool) -> None:
    spans = wal.spans(manifests)
    if as_json:
        until = {span.manifest.stamp: span.reach.moment.isoformat() for span in spans}
        print_json([_facts(manifest) | {"wal_until": until.get(manifest.stamp)} for manifest in manifests])
        return
    if not manifests:
        print(f"no backups in {place}")
        return
    print_columns([("backup", "rows", "size", "secrets", "release"), *map(_row, manifests)])
    if spans:
        print(covered(spans))


def _row(manifest: Manifest) -> tuple[str, ...]:
    return (
        manifest.stamp,
        _rows(manifest),
        size(sum(file.bytes for file in manifest.files())),
        "no" if manifest.secrets is None else "sealed",
        manifest.release,
    )


def _rows(manifest: Manifest) -> str:
    if manifest.physical is not None:
        return f"physical, {len(manifest.physical.parts)} parts"
    return f"{sum(relation.fingerprint.rows for relation in manifest.relations):,}"


async def _prune(settings: Settings, place: str, keep: int | None, *, as_json: bool) -> None:
    if keep is None or keep < 1:
        raise BackupRefused("how many backups should stay? --keep N, at least 1")
    if remote.is_remote(place):
        backup_count, files, freed = await remote.prune_backups(settings, place, keep)
    else:
        folder = remote.checked_folder(place)
        if folder.newest() is None:
            raise BackupRefused(f"{folder.root} contains no backup")
        with folder.held():
            backup_count, files, freed = folder.prune(keep)
            segments, segment_bytes = prune_wal(folder)
        files, freed = files + segments, freed + segment_bytes
    if as_json:
        print_json({"pruned": backup_count, "files": files, "freed_bytes": freed})
        return
    print(f"{backup_count} backups pruned, {files} files removed, {size(freed)} free")
