"""`trace-svc keys create | list | rotate | revoke`: API keys of a project, beside a running service.

Secrets: `create` and `rotate` print a plaintext token, once, on purpose, and nothing else.
"""

from __future__ import annotations

import argparse
from typing import Any, cast

from protocol.operator import OperatorError
from protocol.refusals import BLANK_NAME, KEY_NOT_FOUND, ROTATE_REVOKED, UNKNOWN_SCOPE
from protocol.rest.query import timestamp
from protocol.tokens import SCOPES, Scope
from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import offer_json, print_columns, print_json, printable
from svc.config.table import Settings
from svc.store.accounts.audit import OPERATOR
from svc.store.accounts.keys import AlreadyRevoked, Key, Minted, NoSuchKey, PostgresKeyStore
from svc.store.accounts.projects import Project


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    create = verbs.add_parser("create", help="create a key and print its token, once")
    create.add_argument("--scope", required=True, help="write, query or admin")
    create.add_argument("--name", required=True, help="what the key is for")
    listing = verbs.add_parser("list", help="list the keys of a project")
    rotate = verbs.add_parser("rotate", help="replace the secret of a key and print the new token, once")
    rotate.add_argument("id", help="the id that `keys list` shows")
    revoke = verbs.add_parser("revoke", help="revoke a key immediately and for good")
    revoke.add_argument("id", help="the id that `keys list` shows")
    for verb in (create, listing, rotate, revoke):
        name_project(verb)
        offer_json(verb)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `OperatorError` for a scope, a name, a key or a project that cannot be."""
    verb: str = arguments.verb
    if verb == "create":
        if arguments.scope not in SCOPES:
            raise OperatorError(
                f"{UNKNOWN_SCOPE.message.format(value=arguments.scope)}; one of: {', '.join(SCOPES)}"
            )
        if not arguments.name.strip():
            raise OperatorError(BLANK_NAME.message)
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        keys = PostgresKeyStore(store.database)
        match verb:
            case "create":
                name, scope = arguments.name.strip(), cast(Scope, arguments.scope)
                _print_token(
                    await keys.create(project.id, name, scope, actor=OPERATOR), as_json=arguments.json
                )
            case "list":
                await _list(keys, project, as_json=arguments.json)
            case "rotate":
                await _rotate(keys, project, arguments.id, as_json=arguments.json)
            case _:
                await _revoke(keys, project, arguments.id, as_json=arguments.json)


def _print_token(minted: Minted, *, as_json: bool) -> None:
    if as_json:
        print_json({**_fields(minted.key), "token": minted.plaintext})
    else:
        print(minted.plaintext)


def _fields(key: Key) -> dict[str, Any]:
    """What is shown of a key."""
    names = ("id", "name", "scope", "state", "token_prefix", "created_at", "last_used_at")
    return {name: getattr(key, name) for name in names}


async def _list(keys: PostgresKeyStore, project: Project, *, as_json: bool) -> None:
    if as_json:
        print_json([_fields(key) for key in await keys.list(project.id)])
        return
    rows = [("ID", "SCOPE", "STATE", "PREFIX", "CREATED", "LAST USED", "NAME")]
    for key in await keys.list(project.id):
        used = "Never" if key.last_used_at is None else timestamp(key.last_used_at)
        rows.append(
            (key.id, key.scope, key.state, key.token_prefix, timestamp(key.created_at), used, key.name)
        )
    print_columns(rows)
    if len(rows) == 1:
        print(f"no keys yet in {project.org_slug}/{project.slug}; make one with `trace-svc keys create`")


async def _rotate(keys: PostgresKeyStore, project: Project, key_id: str, *, as_json: bool) -> None:
    match await keys.rotate(project.id, key_id, actor=OPERATOR):
        case NoSuchKey():
            raise OperatorError(KEY_NOT_FOUND.message)
        case AlreadyRevoked():
            raise OperatorError(ROTATE_REVOKED.message)
        case minted:
            _print_token(minted, as_json=as_json)


async def _revoke(keys: PostgresKeyStore, project: Project, key_id: str, *, as_json: bool) -> None:
    match await keys.revoke(project.id, key_id, actor=OPERATOR):
        case NoSuchKey():
            raise OperatorError(KEY_NOT_FOUND.message)
        case key if as_json:
            print_json(_fields(key))
        case key:
            print(printable(f"revoked {key.token_prefix}… ({key.name})"))
