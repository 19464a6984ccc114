"""`trace-svc users list | reset-password`: what an operator does for people who cannot sign in.

Secrets: a new password is made here and printed once, on standard output, on purpose.
"""

from __future__ import annotations

import argparse
import secrets

import trio

from protocol.operator import OperatorError
from protocol.rest.accounts import email_key
from protocol.rest.query import timestamp
from svc.application.open_store import open_store
from svc.commands.terminal import offer_json, print_columns, print_json
from svc.config.table import Settings
from svc.store.accounts.accounts import AccountStore
from svc.store.accounts.audit import OPERATOR


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    listing = verbs.add_parser("list", help="list the accounts")
    reset = verbs.add_parser(
        "reset-password", help="set a new password, print it once, and sign the account out everywhere"
    )
    reset.add_argument("email", help="the e-mail address of the account")
    for verb in (listing, reset):
        offer_json(verb)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one of the verbs. Raises `OperatorError` when nobody has the address."""
    async with open_store(settings) as store:
        accounts = AccountStore(store.database, trio.CapacityLimiter(1))
        if arguments.verb == "list":
            await _list(accounts, as_json=arguments.json)
        else:
            await _reset(accounts, arguments.email, as_json=arguments.json)


async def _list(accounts: AccountStore, *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "email": account.email,
                    "role": role,
                    "has_password": account.has_password,
                    "created_at": account.created_at,
                }
                for account, role in await accounts.all()
            ]
        )
        return
    rows = [("EMAIL", "ROLE", "SIGNS IN BY", "CREATED")]
    for account, role in await accounts.all():
        method = "password" if account.has_password else "identity provider"
        rows.append(
            (
                account.email,
                "in projects" if role == "none" else role or "none",
                method,
                timestamp(account.created_at),
            )
        )
    print_columns(rows)
    if len(rows) == 1:
        print("nobody has signed up yet; the first person who does owns the instance")


async def _reset(accounts: AccountStore, email: str, *, as_json: bool) -> None:
    account = await accounts.by_email(email_key(email) or "")
    if account is None:
        raise OperatorError(f"no account has the address {email}; see `trace-svc users list`")
    password = secrets.token_urlsafe(16)
    await accounts.set_password(account.id, password, actor=OPERATOR)
    if as_json:
        print_json({"email": account.email, "password": password})
    else:
        print(password)
