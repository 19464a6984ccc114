"""`{p}/alert-rules` and `{p}/alert-deliveries`: what is told, what would have been, and what became of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import attrs

from protocol.alerts import LOOKING_RULES_MAX, MUTE_MAX, RULES_MAX, AlertRule, RuleKind
from protocol.refusals import (
    BAD_RULE,
    BLANK_NAME,
    DELIVERY_LEADS_NOWHERE,
    DELIVERY_WAITS,
    NO_SUCH_CHANNEL,
    NO_SUCH_DELIVERY,
    NO_SUCH_RULE,
    RULE_TAKEN,
    TOO_MANY_RULES,
    Refusal,
    Refused,
)
from protocol.rest.alerts import (
    DeliveriesQuery,
    DeliveryPage,
    DeliveryReplayed,
    FiredShown,
    MuteChange,
    RuleBacktest,
    RuleChange,
    RuleShown,
)
from protocol.rest.orgs import Removed
from protocol.rest.query import timestamp, timestamp_or_none
from svc.domain.alerts.calendar import first_look
from svc.domain.alerts.params import (
    BadParams,
    MetricParams,
    RuleParams,
    kept_params,
    read_params,
)
from svc.domain.alerts.words import NOBODY, sentence_of
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.alerts.deliveries import PostgresDeliveryStore
from svc.store.alerts.rules import AlertRuleStore
from svc.store.postgres.database import Database
from svc.store.reads.alerts.alert_backtest import AlertBacktest
from svc.store.reads.alerts.alert_figures import looks_into_payloads
from svc.store.reads.alerts.rule_checks import check_rule

_TOO_MANY_LOOK: Final = (
    f"at most {LOOKING_RULES_MAX} rules of a project filter by attributes that are not fields:"
    " make them fields on Settings, Attributes"
)


def _store(call: Call[Any]) -> AlertRuleStore:
    return AlertRuleStore(call.means.database)


def _rule_view(call: Call[Any], rule: AlertRule) -> RuleShown:
    muted = rule.is_muted(call.means.now())
    return RuleShown(
        id=str(rule.id),
        kind=rule.kind,
        name=rule.name,
        says=sentence_of(rule.kind, read_params(rule.kind, rule.params)),
        params=dict(rule.params),
        channels=[str(channel_id) for channel_id in rule.channels],
        muted_until=timestamp_or_none(rule.muted_until) if muted else None,
        muted_by=rule.muted_by if muted else None,
        looked_at=timestamp_or_none(rule.looked_at),
        told_at=timestamp_or_none(rule.told_at),
        trouble=rule.trouble,
        unwatched=call.means.alerts.unwatched(rule.kind),
        warning=None if rule.channels else NOBODY,
        created_at=timestamp(rule.created_at),
        updated_at=timestamp(rule.updated_at),
    )


async def _rule(call: Call[Any]) -> AlertRule:
    """The rule of the path. Raises `Refused`."""
    rule = await _store(call).one(call.project.id, call.id_of("ruleId", NO_SUCH_RULE))
    if rule is None:
        raise Refused(NO_SUCH_RULE)
    return rule


async def checked_params(
    database: Database, project_id: int, kind: RuleKind, fields: dict[str, Any]
) -> RuleParams:
    """What a rule asks for, if it can be asked and can happen. Raises `Refused`."""
    try:
        params = read_params(kind, fields)
    except BadParams as bad:
        raise Refused(BAD_RULE.saying(str(bad))) from None
    await check_rule(database, project_id, params)
    return params


async def get_rules(call: Call[None]) -> list[RuleShown]:
    """The alert rules of the project, and what each waits for."""
    return [_rule_view(call, rule) for rule in await _store(call).list(call.project.id)]


async def post_rule(call: Call[RuleChange]) -> RuleShown | Refusal:
    """Add a rule. One without a channel is kept, and its `warning` says that nobody is notified."""
    now = call.means.now()
    return await _put(call, AlertRule(call.project.id, uuid4(), call.body.kind, "", {}, (), now, now))


async def put_rule(call: Call[RuleChange]) -> RuleShown | Refusal:
    """Replace a rule. It forgets what it has seen and looks at once; its mute stays."""
    return await _put(call, await _rule(call))


async def _put(call: Call[RuleChange], rule: AlertRule) -> RuleShown | Refusal:
    body, now = call.body, call.means.now()
    params = await checked_params(call.means.questions, call.project.id, body.kind, body.params)
    if not body.name.strip():
        return BLANK_NAME
    if await _too_many_look(call, rule, params):
        return BAD_RULE.saying(_TOO_MANY_LOOK)
    try:
        channels = tuple(dict.fromkeys(UUID(channel_id) for channel_id in body.channels))
    except ValueError:
        return NO_SUCH_CHANNEL
    changed = attrs.evolve(
        rule,
        kind=body.kind,
        name=body.name.strip(),
        params=kept_params(params),
        channels=channels,
        due_at=first_look(body.kind, params, now),
        looked_at=None,
        trouble=None,
        updated_at=now,
    )
    match await _store(call).put(changed, call.caller.label):
        case "taken":
            return RULE_TAKEN
        case "too many":
            return TOO_MANY_RULES.saying(f"{TOO_MANY_RULES.message} ({RULES_MAX})")
        case "no such channel":
            return NO_SUCH_CHANNEL
        case None:
            return _rule_view(call, changed)


async def _too_many_look(call: Call[RuleChange], rule: AlertRule, params: RuleParams) -> bool:
    """Whether a rule would be one too many of those that look into payloads."""
    if not isinstance(params, MetricParams):
        return False
    further = [
        further_params
        for further_rule in await _store(call).list(call.project.id)
        if further_rule.id != rule.id
        and isinstance(further_params := read_params(further_rule.kind, further_rule.params), MetricParams)
    ]
    looks, *further_looks = await looks_into_payloads(call.means.questions, call.project.id, params, *further)
    return looks and sum(further_looks) >= LOOKING_RULES_MAX


async def delete_rule(call: Call[None]) -> Removed | Refusal:
    """Remove a rule with what it has not told yet; messages on their way still arrive."""
    return Removed() if await _store(call).remove(await _rule(call), call.caller.label) else NO_SUCH_RULE


async def post_mute(call: Call[MuteChange]) -> RuleShown | Refusal:
    """Have a rule keep still until a moment, or speak again."""
    rule, now, until = await _rule(call), call.means.now(), None
    if call.body.until is not None:
        try:
            until = datetime.fromisoformat(call.body.until)
        except ValueError:
            return BAD_RULE.saying("until is no instant, such as 2026-11-30T08:00:00Z")
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        if not timedelta(0) < until - now <= MUTE_MAX:
            return BAD_RULE.saying(f"until must lie within the next {MUTE_MAX.days} days")
    if not await _store(call).mute(rule, until, call.caller.label, now):
        return NO_SUCH_RULE
    by = None if until is None else call.caller.label
    return _rule_view(call, attrs.evolve(rule, muted_until=until, muted_by=by))


async def post_backtest(call: Call[RuleBacktest]) -> FiredShown:
    """How often a rule would have fired over the last 28 days, by what history knows."""
    params = await checked_params(call.means.questions, call.project.id, call.body.kind, call.body.params)
    backtest = await AlertBacktest(call.means.questions).run(
        call.project.id, call.body.kind, params, call.means.now()
    )
    return FiredShown(
        judged=backtest.judged,
        fired=backtest.fired,
        instants=[timestamp(instant) for instant in backtest.instants],
        since=timestamp(backtest.since),
        note=backtest.note,
    )


async def get_deliveries(call: Call[None]) -> dict[str, Any] | Refusal:
    """Messages and what became of them, newest first."""
    query: DeliveriesQuery = call.query
    channel_id = None
    if query.channel_id is not None:
        try:
            channel_id = UUID(query.channel_id)
        except ValueError:
            return NO_SUCH_CHANNEL
    return await PostgresDeliveryStore(call.means.questions).page(
        call.project.id, state=query.state, channel_id=channel_id, limit=query.limit, cursor=query.cursor
    )


async def post_replay(call: Call[None]) -> DeliveryReplayed | Refusal:
    """Have a message sent once more, under the id that it had."""
    delivery_id = call.id_of("deliveryId", NO_SUCH_DELIVERY)
    match await PostgresDeliveryStore(call.means.database).replay(
        call.project.id, delivery_id, call.caller.label
    ):
        case "missing":
            return NO_SUCH_DELIVERY
        case "waits":
            return DELIVERY_WAITS
        case "no channel":
            return DELIVERY_LEADS_NOWHERE
        case "queued":
            return DeliveryReplayed()


_RULES: Final = PROJECT + "/alert-rules"
_ONE: Final = _RULES + "/{ruleId}"
_DELIVERIES: Final = PROJECT + "/alert-deliveries"
_FAULTS: Final = (BAD_RULE, BLANK_NAME, RULE_TAKEN, TOO_MANY_RULES, NO_SUCH_CHANNEL)

ROUTES: Final = (
    Route("GET", _RULES, "ORG_VIEW", get_rules, list[RuleShown]),
    Route(
        "POST", _RULES, "ORG_MANAGE", post_rule, RuleShown, body=RuleChange, status=201, refusals=_FAULTS
    ),
    Route("POST", _RULES + "/backtest", "ORG_MANAGE", post_backtest, FiredShown, body=RuleBacktest,
          refusals=(BAD_RULE,)),
    Route(
        "PUT", _ONE, "ORG_MANAGE", put_rule, RuleShown, body=RuleChange, refusals=(*_FAULTS, NO_SUCH_RULE)
    ),
    Route("DELETE", _ONE, "ORG_MANAGE", delete_rule, Removed, refusals=(NO_SUCH_RULE,)),
    Route(
        "POST", _ONE + "/mute", "ORG_MANAGE", post_mute, RuleShown, body=MuteChange,
        refusals=(NO_SUCH_RULE, BAD_RULE),
    ),
    Route(
        "GET", _DELIVERIES, "ORG_VIEW", get_deliveries, DeliveryPage, query=DeliveriesQuery,
        refusals=(NO_SUCH_CHANNEL,),
    ),
    Route(
        "POST", _DELIVERIES + "/{deliveryId}/replay", "ORG_MANAGE", post_replay, DeliveryReplayed,
        refusals=(NO_SUCH_DELIVERY, DELIVERY_WAITS, DELIVERY_LEADS_NOWHERE),
    ),
)  # fmt: skip
