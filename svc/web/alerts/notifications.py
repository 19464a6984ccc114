"""Settings: alerts. Channels with the rules that send to them, and deliveries with a replay.

All of it is kept and answered by the handlers of the REST API; forms of channels and rules are pages of their
own. Where there is no channel yet, this page leads to the first step at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from protocol.refusals import Refusal
from protocol.rest.alerts import DeliveriesQuery, RuleBacktest, RuleShown
from svc.domain.alerts.params import MetricParams, read_params
from svc.front.api.alerts import alert_channels, alert_rules
from svc.store.reads.alerts.alert_figures import looks_into_payloads
from svc.web.alerts.alert_view import ActShown, AlertTarget, ChannelForm, channel_fields
from svc.web.alerts.alerts_text import CHANNEL_KINDS, DELIVERY_STATES, FIRST_KIND, MUTES
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.render import query

#: Deliveries that one page lists.
LISTED: Final = 25
#: Instants that are named where a rule would have fired.
NAMED: Final = 5


async def page(visit: Visit) -> Html:
    """Channels with their rules, deliveries."""
    return await shown(visit, ActShown())


async def shown(visit: Visit, act: ActShown) -> Html:
    """The page, with what an act came to."""
    asks = DeliveriesQuery(
        state="dead" if visit.query.get("state") == "dead" else None,
        limit=LISTED,
        cursor=visit.query.get("cursor"),
    )
    deliveries = await asked(visit, alert_rules.get_deliveries, query=asks)
    channels = await alert_channels.get_channels(visit.call)
    rules = await alert_rules.get_rules(visit.call)
    address = visit.base + "/settings/notifications"
    context = {
        "tab": "notifications",
        "channels": channels,
        "names": {channel.id: channel.name for channel in channels},
        "rules": rules,
        # Those that notify nobody.
        "lonely": [rule for rule in rules if not rule.channels],
        # Those that a rule leads to.
        "used": len({channel_id for rule in rules for channel_id in rule.channels}),
        "deliveries": deliveries["deliveries"],
        "dead": asks.state,
        "more": query(address, state=asks.state, cursor=deliveries["next_cursor"])
        if deliveries["next_cursor"]
        else None,
        "said": act,
        "states": DELIVERY_STATES,
        "channel_kinds": CHANNEL_KINDS,
        "mutes": MUTES,
        "manages": visit.manages,
        "looking": await _looking(visit, rules),
    }
    if visit.manages and not channels:
        context |= channel_fields(ChannelForm.new(FIRST_KIND, ()), mails=visit.means.alerts.mails)
    return Html("alerts/notifications", context, status=act.status, secret=act.secret is not None)


async def _looking(visit: Visit, rules: Sequence[RuleShown]) -> set[str]:
    """Rules whose past stands in payloads: to look through these is for those who ask for it."""
    metrics = {
        rule.id: params
        for rule in rules
        if isinstance(params := read_params(rule.kind, rule.params), MetricParams)
    }
    looks = await looks_into_payloads(visit.means.questions, visit.project.id, *metrics.values())
    return {rule_id for rule_id, is_looking in zip(metrics, looks, strict=True) if is_looking}


def back(visit: Visit) -> Go:
    """To the page as it is now."""
    return Go(visit.base + "/settings/notifications")


async def done(visit: Visit, handler: Any, path: Mapping[str, str], **more: Any) -> Html | Go:
    """Have a handler of the REST API do it."""
    answer = await asked(visit, handler, path=path, **more)
    return await shown(visit, ActShown(answer)) if isinstance(answer, Refusal) else back(visit)


async def replay(visit: Visit) -> Html | Go:
    """Have a message sent again."""
    return await done(visit, alert_rules.post_replay, {"deliveryId": visit.form.id})


async def fired(visit: Visit) -> Html:
    """How often one rule would have fired over the last 28 days."""
    backtest: Any = None
    for rule in await alert_rules.get_rules(visit.call):
        if rule.id == visit.query.get("rule"):
            fields = {"kind": rule.kind, "params": rule.params}
            backtest = await asked(visit, alert_rules.post_backtest, RuleBacktest, fields)
    if isinstance(backtest, Refusal):
        backtest = None
    return Html("alerts/would_have_fired", {"fired": backtest, "named": NAMED}, part=True)


NOTIFICATIONS: Final = PROJECT + "/settings/notifications"

PAGES: Final = (
    PageRoute("GET", NOTIFICATIONS, "ORG_VIEW", page),
    PageRoute("GET", NOTIFICATIONS + "/fired", "ORG_VIEW", fired),
    PageRoute("POST", NOTIFICATIONS + "/replay", "ORG_MANAGE", replay, form=AlertTarget),
)
