"""The command line: `trace-svc serve | keys | retention | secrets | dead-letters | taxonomy | …`.

Owns reading the arguments and the environment, and what is printed. Standard output carries what the user
asked for (an address, a token, a table); everything else goes to the log on standard error.

Secrets: `serve` on a first start and `keys create|rotate` print plaintext tokens, once, on purpose.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NoReturn

import trio

from actors.spool.disk import SpoolDamaged, SpoolInUse
from actors.supervision import CrashLoop
from protocol.refusals import BLANK_NAME, KEY_NOT_FOUND, ROTATE_REVOKED, UNKNOWN_SCOPE
from protocol.rest.query import timestamp
from protocol.storage import Outage
from protocol.taxonomy import BadTaxonomy
from protocol.tokens import SCOPES, Scope
from svc.commands import taxonomy as taxonomy_file
from svc.commands.dead_letters import dead_letters
from svc.commands.demo import demo
from svc.commands.doctor import examine
from svc.commands.report import print_report
from svc.commands.retention import add_retention, retention
from svc.commands.rework import HELP as REWORK_HELP
from svc.commands.rework import rework
from svc.commands.secrets import SomeLost, add_secrets, sealed_secrets
from svc.commands.users import NoSuchUser, users
from svc.config.checks import boot_refusals, boot_warnings
from svc.config.table import BadSetting, Settings, read_settings
from svc.config.text import settings_help
from svc.ingest.prices import BadPrices, price_book
from svc.runtime.garbage import collect_seldom
from svc.runtime.logging import set_up
from svc.secrets.own import with_own_secrets
from svc.serve import Ready, serve
from svc.store.accounts.audit import OPERATOR
from svc.store.accounts.keys import AlreadyRevoked, KeyStore, NoSuchKey
from svc.store.accounts.projects import DEFAULT_ORG, DEFAULT_PROJECT, Project, ProjectStore
from svc.store.detection.taxonomy import TaxonomyStore
from svc.store.postgres.embedded.cluster import EmbeddedServerError
from svc.store.postgres.migrate import SchemaTooNew
from svc.store.spans.exporters import ExporterStore
from svc.store.spans.rework import AlreadyAtWork
from svc.wiring.open_store import Store, now, open_store

log = logging.getLogger("trace-svc")

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


class _Stop(Exception):
    """An expected end with a sentence for the operator."""


#: What ends a command with its own sentence instead of a traceback.
_SAID = (
    _Stop,
    BadPrices,
    AlreadyAtWork,
    BadTaxonomy,
    NoSuchUser,
    CrashLoop,
    Outage,
    SchemaTooNew,
    EmbeddedServerError,
    SpoolInUse,
    SpoolDamaged,
    SomeLost,
    OSError,
)


def main(argv: list[str] | None = None) -> int:
    """Run one command. Returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        settings = read_settings(os.environ)
    except BadSetting as bad:
        return _fail(str(bad))
    # Commands beside the service print their result; what the service itself logs is of no interest there.
    set_up(settings.log_level if arguments.command == "serve" else "warning")
    if arguments.command == "doctor" and arguments.project is None:
        return trio.run(examine, settings, os.environ)
    refusals = boot_refusals(settings)
    if refusals:
        return _fail(*refusals)
    if arguments.command in ("serve", "secrets"):
        try:
            settings = with_own_secrets(settings, os.environ)
        except (BadSetting, EmbeddedServerError, OSError) as error:
            return _fail(_sentence(error))
    if arguments.command == "serve":
        for warning in boot_warnings(settings, os.environ):
            log.warning(warning)
    ended = 0
    try:
        trio.run(_run, _work(arguments, settings))
    except* _SAID as group:
        ended = _fail(*(_sentence(error) for error in _leaves(group)))
    except* KeyboardInterrupt:
        ended = _fail("interrupted")
    return ended


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, Outage):
        return f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
    return str(error)


def _fail(*sentences: str) -> int:
    for sentence in sentences:
        print(f"trace-svc: {sentence}", file=sys.stderr)
    return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trace-svc",
        description="Takes traces of LLM applications over OTLP and answers questions about them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser(
        "serve",
        help="run the service",
        description="Run the service. With nothing configured it brings its own PostgreSQL.",
        epilog="settings, read from the environment [default]:\n" + settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    keys = commands.add_parser("keys", help="make, list, rotate and revoke API keys")
    verbs = keys.add_subparsers(dest="verb", required=True, metavar="verb")
    create = verbs.add_parser("create", help="make a key and print its token, once")
    create.add_argument("--scope", required=True, help="write, query or admin")
    create.add_argument("--name", required=True, help="what the key is for")
    listing = verbs.add_parser("list", help="list the keys of a project")
    rotate = verbs.add_parser("rotate", help="give a key a new secret and print the token, once")
    rotate.add_argument("id", help="the id that `keys list` shows")
    revoke = verbs.add_parser("revoke", help="revoke a key at once and for good")
    revoke.add_argument("id", help="the id that `keys list` shows")
    for verb in (create, listing, rotate, revoke):
        _name_project(verb)
    add_retention(commands)
    add_secrets(commands)
    letters = commands.add_parser("dead-letters", help="list, show, replay and drop what could not be stored")
    letter_verbs = letters.add_subparsers(dest="verb", required=True, metavar="verb")
    letter_verbs.add_parser("list", help="list the letters, oldest first")
    show = letter_verbs.add_parser("show", help="print a letter whole, its spans as JSON")
    show.add_argument("id", type=int, help="the id that `dead-letters list` shows")
    for name, text in (
        ("replay", "write letters again; stored ones go"),
        ("drop", "delete letters for good"),
    ):
        verb = letter_verbs.add_parser(name, help=text)
        chosen = verb.add_mutually_exclusive_group(required=True)
        chosen.add_argument("ids", type=int, nargs="*", default=[], metavar="id", help="ids of letters")
        chosen.add_argument("--all", action="store_true", help="all of them")
    taxonomy = commands.add_parser("taxonomy", help="import failure modes, chains, packs and intents")
    taxonomy_verbs = taxonomy.add_subparsers(dest="verb", required=True, metavar="verb")
    importing = taxonomy_verbs.add_parser(
        "import",
        help="make a project's taxonomy what a file says",
        description=taxonomy_file.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    importing.add_argument("file", type=Path, help="YAML or JSON")
    _name_project(importing)
    for name, text in (
        ("reprice", "work stored costs out anew from the present prices"),
        ("remap", "read stored spans anew with the present mapping and prices"),
    ):
        verb = commands.add_parser(name, help=text, description=REWORK_HELP)
        verb.add_argument("--apply", action="store_true", help="change the stored spans; else only a preview")
        _name_project(verb)
    people = commands.add_parser("users", help="list accounts, give one a new password")
    people_verbs = people.add_subparsers(dest="verb", required=True, metavar="verb")
    people_verbs.add_parser("list", help="list the accounts")
    reset = people_verbs.add_parser(
        "reset-password", help="give an account a new password, print it once, and end its sessions"
    )
    reset.add_argument("email", help="the address of the account")
    trying = commands.add_parser("demo", help="send sample agent traces and ask about them")
    trying.add_argument("--url", help="address of the service (default: the configured one)")
    doctor = commands.add_parser(
        "doctor",
        help="say what is configured, what is reachable and what is wrong",
        description="What is configured, what is reachable and what is wrong. With --project instead:"
        " who sends spans into it, what is understood of them, and what to change.",
    )
    doctor.add_argument("--org", default=DEFAULT_ORG, help="organization (default: %(default)s)")
    doctor.add_argument("--project", help="say what this project's exporters send")
    doctor.add_argument(
        "--days",
        type=int,
        choices=range(1, 31),
        default=7,
        metavar="N",
        help="over the last N days (default: 7)",
    )
    return parser


def _name_project(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--org", default=DEFAULT_ORG, help="organization (default: %(default)s)")
    verb.add_argument("--project", default=DEFAULT_PROJECT, help="project (default: %(default)s)")


def _work(arguments: argparse.Namespace, settings: Settings) -> Callable[[], Awaitable[None]]:
    match arguments.command:
        case "serve":
            return lambda: _serve(settings)
        case "keys":
            return lambda: _keys(arguments, settings)
        case "retention":
            return lambda: retention(arguments, settings)
        case "secrets":
            return lambda: sealed_secrets(arguments, settings)
        case "dead-letters":
            return lambda: dead_letters(arguments, settings)
        case "users":
            return lambda: users(arguments, settings)
        case "taxonomy":
            return lambda: _taxonomy(arguments, settings)
        case "reprice" | "remap":
            return lambda: _rework(arguments, settings)
        case "doctor":
            return lambda: _ingest(arguments, settings)
        case "demo":
            return lambda: demo(settings, arguments.url)
        case other:
            _unreachable(other)


def _unreachable(value: object) -> NoReturn:
    raise AssertionError(value)


async def _serve(settings: Settings) -> None:
    async with trio.open_nursery() as nursery:
        _greet(await nursery.start(serve, settings))
        collect_seldom()


def _greet(ready: Ready) -> None:
    """The address, and on a first start keys and the lines that send and count a first trace."""
    print(f"trace-svc is ready at {ready.http_url}", flush=True)
    if ready.grpc_port is not None:
        print(f"gRPC door open on port {ready.grpc_port}", flush=True)
    if ready.first_keys is None:
        return
    write, query = ready.first_keys
    print(
        "\nThis is the first start. Two fresh keys, shown this once:\n"
        f"  write  {write}\n"
        f"  query  {query}\n"
        "\nPaste these three lines into a shell to send a trace and count its spans:\n\n"
        f"  export SVC={ready.http_url} WRITE_KEY={write} QUERY_KEY={query}\n"
        '  curl -sS "$SVC/v1/traces" -H "Authorization: Bearer $WRITE_KEY"'
        f" -H 'Content-Type: application/json' -d '{_FIRST_TRACE}'\n"
        '  sleep 1; curl -sS "$SVC/v1/query/count" -H "Authorization: Bearer $QUERY_KEY"'
        """ -d '{"dataset": "spans"}'\n""",
        flush=True,
    )


#: One chat span, with the shell filling in a random id and the time.
_FIRST_TRACE: Final = (
    '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"hello"}}]},'
    '"scopeSpans":[{"spans":[{"traceId":"\'$(od -An -N16 -tx1 /dev/urandom | tr -d " \\n")\'",'
    '"spanId":"00f067aa0ba902b7","name":"chat gpt-4o","kind":3,'
    '"startTimeUnixNano":"\'$(date +%s)\'000000000","endTimeUnixNano":"\'$(date +%s)\'900000000",'
    '"attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},'
    '{"key":"gen_ai.request.model","value":{"stringValue":"gpt-4o"}},'
    '{"key":"gen_ai.usage.input_tokens","value":{"intValue":"120"}},'
    '{"key":"gen_ai.usage.output_tokens","value":{"intValue":"30"}}]}]}]}]}'
)


async def _taxonomy(arguments: argparse.Namespace, settings: Settings) -> None:
    taxonomy = taxonomy_file.read_file(arguments.file)
    async with open_store(settings) as store:
        project = await _project(store, arguments)
        await taxonomy_file.import_taxonomy(taxonomy, TaxonomyStore(store.database), project)


async def _ingest(arguments: argparse.Namespace, settings: Settings) -> None:
    async with open_store(settings) as store:
        project = await _project(store, arguments)
        print_report(await ExporterStore(store.database).report(project.id, now(), arguments.days))


async def _rework(arguments: argparse.Namespace, settings: Settings) -> None:
    prices = price_book(settings)
    async with open_store(settings) as store:
        project = await _project(store, arguments)
        await rework(store.database, project, arguments.command, prices, apply=arguments.apply)


async def _keys(arguments: argparse.Namespace, settings: Settings) -> None:
    verb: str = arguments.verb
    if verb == "create":
        if arguments.scope not in SCOPES:
            raise _Stop(UNKNOWN_SCOPE.message.format(value=arguments.scope))
        if not arguments.name.strip():
            raise _Stop(BLANK_NAME.message)
    async with open_store(settings) as store:
        project = await _project(store, arguments)
        keys = KeyStore(store.database)
        match verb:
            case "create":
                await _create(keys, project, arguments.name.strip(), arguments.scope)
            case "list":
                await _list(keys, project)
            case "rotate":
                await _rotate(keys, project, arguments.id)
            case "revoke":
                await _revoke(keys, project, arguments.id)
            case other:
                _unreachable(other)


async def _project(store: Store, arguments: argparse.Namespace) -> Project:
    projects = ProjectStore(store.database)
    if (arguments.org, arguments.project) == (DEFAULT_ORG, DEFAULT_PROJECT):
        return await projects.make_default()
    project = await projects.find(arguments.org, arguments.project)
    if project is None:
        raise _Stop(f"there is no project {arguments.org}/{arguments.project}")
    return project


async def _create(keys: KeyStore, project: Project, name: str, scope: Scope) -> None:
    print((await keys.create(project.id, name, scope, actor=OPERATOR)).plaintext)


async def _list(keys: KeyStore, project: Project) -> None:
    rows = [("ID", "SCOPE", "STATE", "PREFIX", "CREATED", "LAST USED", "NAME")]
    for key in await keys.list(project.id):
        used = "Never" if key.last_used_at is None else timestamp(key.last_used_at)
        rows.append(
            (key.id, key.scope, key.state, key.token_prefix, timestamp(key.created_at), used, key.name)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if len(rows) == 1:
        print(f"no keys yet in {project.org_slug}/{project.slug}; make one with `trace-svc keys create`")


async def _rotate(keys: KeyStore, project: Project, key_id: str) -> None:
    match await keys.rotate(project.id, key_id, actor=OPERATOR):
        case NoSuchKey():
            raise _Stop(KEY_NOT_FOUND.message)
        case AlreadyRevoked():
            raise _Stop(ROTATE_REVOKED.message)
        case minted:
            print(minted.plaintext)


async def _revoke(keys: KeyStore, project: Project, key_id: str) -> None:
    match await keys.revoke(project.id, key_id, actor=OPERATOR):
        case NoSuchKey():
            raise _Stop(KEY_NOT_FOUND.message)
        case key:
            print(f"revoked {key.token_prefix}… ({key.name})")


if __name__ == "__main__":
    sys.exit(main())
