"""`trace-svc alerts`: channels, rules, what these would have told, and messages, beside a running server.

What is kept here the service takes up within seconds. A test message is sent from this process, by the same
rules about addresses. Secrets: one comes from a file or standard input, never from the command line, and one
that we made is printed once, alone on standard output, on purpose.
"""

from __future__ import annotations

import argparse
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import attrs
import msgspec

from protocol.alerts import (
    CHANNEL_KINDS,
    RULE_KINDS,
    AlertChannel,
    AlertPlace,
    AlertRule,
    ChannelSecret,
    Undelivered,
)
from protocol.operator import OperatorError
from protocol.refusals import Refused
from protocol.rest.query import timestamp
from svc.application.alert_dispatcher import AlertDispatcher
from svc.application.open_store import open_store
from svc.commands.alerts_shown import (
    print_channels,
    print_deliveries,
    print_fired,
    print_rules,
)
from svc.commands.target import name_project, named_project
from svc.commands.terminal import id_of, lists_bare, offer_json, print_json
from svc.config.table import Settings
from svc.domain.alerts.calendar import first_look
from svc.domain.alerts.channels.table import CHANNELS, fault_of, read_fields
from svc.domain.alerts.channels.webhook import secret_of
from svc.domain.alerts.composing import trial_message
from svc.domain.alerts.params import (
    BadParams,
    RuleParams,
    kept_params,
    typed_params,
)
from svc.domain.alerts.words import NOBODY
from svc.secrets.sealing import Sealer
from svc.store.accounts.audit import OPERATOR
from svc.store.accounts.projects import Project
from svc.store.alerts.channels import AlertChannelStore
from svc.store.alerts.deliveries import PostgresDeliveryStore
from svc.store.alerts.rules import AlertRuleStore
from svc.store.postgres.database import Database
from svc.store.reads.alerts.alert_backtest import AlertBacktest
from svc.store.reads.alerts.rule_checks import check_rule

#: Which option gives a field of a channel.
_CHANNEL_OPTIONS: Final = {"url": "--url", "base_url": "--url", "to": "--to"}
_MISSING: Final = re.compile(r"params of (?P<kind>\S+): Object missing required field `(?P<field>\w+)`.*")
_UNCHANGED: Final = {
    "taken": "the name is already taken",
    "too many": "the project has reached its limit",
    "no such channel": "there is no such channel",
}


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="verb")
    listing = verbs.add_parser("list", help="list rules: what they watch and who is notified")
    channels = verbs.add_parser("channels", help="list channels: where they lead and whether they work")
    adding = verbs.add_parser("add-channel", help="add a channel")
    adding.add_argument("name")
    adding.add_argument("--kind", choices=CHANNEL_KINDS, required=True)
    adding.add_argument("--url", help="URL of a webhook or ntfy topic, or the PagerDuty region")
    adding.add_argument("--to", nargs="+", metavar="ADDRESS", help="e-mail addresses")
    adding.add_argument(
        "--secret-file",
        metavar="FILE",
        help="file with its secret, - for standard input; a webhook without one gets a new one, printed once",
    )
    rule = verbs.add_parser("add", help="add a rule")
    rule.add_argument("name")
    rule.add_argument("--channel", action="append", default=[], help="name of a channel; can be repeated")
    backtest = verbs.add_parser("backtest", help="how often a rule would have fired in the last 28 days")
    for verb in (rule, backtest):
        verb.add_argument("--kind", choices=RULE_KINDS, required=True)
        verb.add_argument(
            "--param",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="such as least_severity=high, figure=p95_ms or filters.tool=lookup; can be repeated",
        )
    _add_acts(verbs)
    for verb in verbs.choices.values():
        name_project(verb)
    for verb in (listing, channels, backtest, verbs.choices["deliveries"]):
        offer_json(verb)
    lists_bare(parser, listing)


def _add_acts(verbs: Any) -> None:
    test = verbs.add_parser("test", help="send a test message to a channel now")
    test.add_argument("channel", help="its name")
    remove = verbs.add_parser("remove", help="remove a rule and its pending messages")
    remove.add_argument("rule", help="its name")
    without = verbs.add_parser("remove-channel", help="remove a channel and its pending messages")
    without.add_argument("channel", help="its name")
    mute = verbs.add_parser("mute", help="mute a rule for some hours")
    mute.add_argument("rule", help="its name")
    mute.add_argument("--hours", type=float, default=24.0, help="for how many hours (default: %(default)g)")
    unmute = verbs.add_parser("unmute", help="unmute a rule")
    unmute.add_argument("rule", help="its name")
    deliveries = verbs.add_parser("deliveries", help="list messages and their state, newest first")
    deliveries.add_argument("--state", choices=("queued", "sent", "dead"), help="only in this state")
    deliveries.add_argument("--limit", type=int, default=50, help="how many at most (default: %(default)s)")
    replay = verbs.add_parser("replay", help="send messages again, with the same ids")
    replay.add_argument("delivery", help="an id from `alerts deliveries`, or `dead` for all dead ones")


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `OperatorError` for what is not there, or cannot be."""
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        verb = _Verbs(arguments, settings, store.database, project)
        await getattr(verb, "do_" + arguments.verb.replace("-", "_"))()


class _Verbs:
    """One method a verb."""

    def __init__(
        self, arguments: argparse.Namespace, settings: Settings, database: Database, project: Project
    ) -> None:
        self.arguments, self.settings, self.project = arguments, settings, project
        self.channel_store, self.rule_store = AlertChannelStore(database), AlertRuleStore(database)
        self.delivery_store, self.database = PostgresDeliveryStore(database), database
        self.now = datetime.now(UTC)

    async def do_list(self) -> None:
        rules = await self.rule_store.list(self.project.id)
        names = {channel.id: channel.name for channel in await self.channel_store.list(self.project.id)}
        print_rules(rules, names, as_json=self.arguments.json)

    async def do_channels(self) -> None:
        channels = await self.channel_store.list(self.project.id)
        print_channels(channels, as_json=self.arguments.json)

    async def do_add_channel(self) -> None:
        arguments = self.arguments
        secret = _read_secret(arguments.secret_file)
        new_secret = None
        if CHANNELS[arguments.kind].credential == "made" and secret is None:
            new_secret = secret = secret_of(secrets.token_bytes(32))
        try:
            fields = read_fields(arguments.kind, _channel_params(arguments))
        except BadParams as bad:
            raise OperatorError(_missing_option(bad, _CHANNEL_OPTIONS) or str(bad)) from None
        mails = self.settings.smtp_url is not None
        fault = fault_of(arguments.kind, fields, secret, kept=False, mails=mails)
        if fault is not None:
            raise OperatorError(fault)
        params = msgspec.to_builtins(fields)
        new = AlertChannel(
            self.project.id, uuid4(), arguments.kind, arguments.name, params, None, self.now, self.now
        )
        sealed = None
        if secret is not None:
            text = msgspec.json.encode(ChannelSecret(secret=secret)).decode()
            sealed = Sealer.of(self.settings).seal(text, new.purpose)
        _refuse(await self.channel_store.put(attrs.evolve(new, sealed=sealed), OPERATOR))
        if new_secret is not None:
            print(new_secret)

    async def do_add(self) -> None:
        params = await self._params()
        ids_by_name = {channel.name: channel.id for channel in await self.channel_store.list(self.project.id)}
        missing = next((name for name in self.arguments.channel if name not in ids_by_name), None)
        if missing is not None:
            raise OperatorError(f"there is no channel {missing!r}; see `trace-svc alerts channels`")
        kind = self.arguments.kind
        rule = AlertRule(
            self.project.id,
            uuid4(),
            kind,
            self.arguments.name,
            kept_params(params),
            tuple(ids_by_name[name] for name in self.arguments.channel),
            self.now,
            self.now,
            due_at=first_look(kind, params, self.now),
        )
        _refuse(await self.rule_store.put(rule, OPERATOR))
        if not rule.channels:
            print(f"warning: {NOBODY} (--channel NAME)", file=sys.stderr)

    async def do_backtest(self) -> None:
        params = await self._params()
        firings = await AlertBacktest(self.database).run(
            self.project.id, self.arguments.kind, params, self.now
        )
        print_fired(firings, as_json=self.arguments.json)

    async def _params(self) -> RuleParams:
        pairs = [text.partition("=") for text in self.arguments.param]
        bad = next((name for name, equals, _ in pairs if not equals), None)
        if bad is not None:
            raise OperatorError(f"--param {bad} is not NAME=VALUE")
        try:
            params = typed_params(self.arguments.kind, {name: value for name, _, value in pairs})
            await check_rule(self.database, self.project.id, params)
        except BadParams as error:
            raise OperatorError(_missing_option(error, {}) or str(error)) from None
        except Refused as refused:
            raise OperatorError(refused.refusal.message) from None
        return params

    async def do_test(self) -> None:
        channel = await self._channel()
        dispatcher = AlertDispatcher.of(self.settings, lambda: self.now)
        delivery_id = uuid4()
        location = AlertPlace(self.project.org_slug, self.project.slug)
        message = trial_message(location, channel.name, timestamp(self.now), delivery_id.hex)
        await self.channel_store.tested(channel, OPERATOR)
        outcome = await dispatcher.try_channel(channel, message, delivery_id)
        if isinstance(outcome, Undelivered):
            raise OperatorError(f"the test message was not accepted: {outcome.why}")
        print("accepted" if outcome is None else f"accepted (status {outcome})")

    async def _channel(self) -> AlertChannel:
        for channel in await self.channel_store.list(self.project.id):
            if channel.name == self.arguments.channel:
                return channel
        raise OperatorError(f"there is no channel {self.arguments.channel!r}")

    async def _rule(self) -> AlertRule:
        for rule in await self.rule_store.list(self.project.id):
            if rule.name == self.arguments.rule:
                return rule
        raise OperatorError(f"there is no rule {self.arguments.rule!r}")

    async def do_remove(self) -> None:
        await self.rule_store.remove(await self._rule(), OPERATOR)

    async def do_remove_channel(self) -> None:
        await self.channel_store.remove(await self._channel(), OPERATOR)

    async def do_mute(self) -> None:
        if not 0 < self.arguments.hours <= 24 * 365:
            raise OperatorError("--hours must be above 0 and at most a year")
        until = self.now + timedelta(hours=self.arguments.hours)
        await self.rule_store.mute(await self._rule(), until, OPERATOR, self.now)
        print(f"muted until {until:%Y-%m-%d %H:%M} UTC")

    async def do_unmute(self) -> None:
        await self.rule_store.mute(await self._rule(), None, OPERATOR, self.now)

    async def do_deliveries(self) -> None:
        if not 1 <= self.arguments.limit <= 1_000:
            raise OperatorError("--limit must be from 1 to 1000")
        page = await self.delivery_store.page(
            self.project.id,
            state=self.arguments.state,
            channel_id=None,
            limit=self.arguments.limit,
            cursor=None,
        )
        print_json(page) if self.arguments.json else print_deliveries(page["deliveries"])

    async def do_replay(self) -> None:
        typed = self.arguments.delivery
        ids = await self._dead() if typed == "dead" else [id_of(typed, _REPLAYED["missing"])]
        replay_count = 0
        for delivery_id in ids:
            answer = await self.delivery_store.replay(self.project.id, delivery_id, OPERATOR)
            replay_count += answer == "queued"
            if answer != "queued" and len(ids) == 1:
                raise OperatorError(_REPLAYED[answer])
        print(f"{replay_count} {'message is' if replay_count == 1 else 'messages are'} sent again")

    async def _dead(self) -> Sequence[UUID]:
        dead_ids: list[UUID] = []
        cursor = None
        while True:
            page = await self.delivery_store.page(
                self.project.id, state="dead", channel_id=None, limit=1_000, cursor=cursor
            )
            dead_ids += [UUID(delivery["id"]) for delivery in page["deliveries"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return dead_ids


_REPLAYED: Final = {
    "missing": "no such alert delivery",
    "waits": "the message is already waiting to be sent",
    "no channel": "its channel was removed, or turned off because the receiver answered that it is gone",
}


def _refuse(why: str | None) -> None:
    if why is not None:
        raise OperatorError(_UNCHANGED[why])


def _missing_option(bad: BadParams, options: Mapping[str, str]) -> str | None:
    """What to type, where a field is missing that has to be there; None for any other fault."""
    missing = _MISSING.fullmatch(str(bad))
    if missing is None:
        return None
    kind, field = missing["kind"], missing["field"]
    return f"{kind} needs {options.get(field, f'--param {field}=VALUE')}"


def _channel_params(arguments: argparse.Namespace) -> dict[str, Any]:
    params = {"to": arguments.to} if arguments.kind == "email" else {}
    if arguments.url is not None:
        params["base_url" if arguments.kind == "pagerduty" else "url"] = arguments.url
    return {name: value for name, value in params.items() if value is not None}


def _read_secret(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        text = sys.stdin.read(8_192) if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{name} cannot be read: {type(error).__name__}") from None
    if not text.strip():
        raise OperatorError("the secret is empty")
    return text.strip()
