"""Settings: notifications. Channels, rules with what each would have told, deliveries with a replay.

All of it is kept and answered by the handlers of the REST API. Secrets: one comes in with a form and is
sealed at once; one that we made stands in the answer to its making, which nobody stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import attrs

from protocol.refusals import BAD_RULE, Refusal
from protocol.rest.alerts import (
    ChannelTested,
    DeliveriesQuery,
    FiredShown,
    MuteChange,
    RuleBacktest,
    RuleChange,
)
from protocol.rest.query import timestamp
from svc.domain.alerts.params import BadParams
from svc.domain.alerts.words import DAYS
from svc.domain.detect.detectors.table import DETECTORS
from svc.front.api import alert_channels, alert_rules
from svc.web.alerts.alert_view import (
    BOUNDS,
    CHANNEL_KINDS,
    DATASETS,
    FIGURES,
    GROUPS,
    KINDS,
    MUTES,
    AlertTarget,
    ChannelForm,
    Fields,
    MuteForm,
    RuleForm,
)
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.render import query

#: Deliveries that one page lists.
LISTED: Final = 25
#: Instants that are named where a rule would have fired.
NAMED: Final = 5


@attrs.frozen
class ActShown:
    """What an act came to, to be shown on the page."""

    refusal: Refusal | None = None
    #: The signing secret that we made, and of which channel.
    secret: tuple[str, str] | None = None
    tested: tuple[str, ChannelTested] | None = None
    fired: FiredShown | None = None
    channel: ChannelForm = attrs.field(factory=ChannelForm)
    rule: RuleForm = attrs.field(factory=RuleForm)


async def page(visit: Visit) -> Html:
    """Channels, rules, deliveries."""
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
        "deliveries": deliveries["deliveries"],
        "dead": asks.state,
        "more": query(address, state=asks.state, cursor=deliveries["next_cursor"])
        if deliveries["next_cursor"]
        else None,
        "said": act,
        "typed": _typed(act.rule),
        "groups": GROUPS,
        "kinds": KINDS,
        "channel_kinds": CHANNEL_KINDS,
        "datasets": DATASETS,
        "figures": FIGURES,
        "bounds": BOUNDS,
        "days": list(enumerate(DAYS)),
        "mutes": MUTES,
        "detectors": list(DETECTORS),
        "fields": Fields,
        "unwatched": {kind: visit.means.alerts.unwatched(kind) for kind in KINDS},
        "mails": visit.means.alerts.mails,
        "manages": visit.manages,
    }
    status = act.refusal.status if act.refusal else 200
    return Html("alerts/notifications", context, status=status, secret=act.secret is not None)


def _typed(form: RuleForm) -> Mapping[str, Any]:
    """What was typed, to be shown again where it could not be kept."""
    if not form.kind or form.id:
        return {}
    typed = {name: getattr(form, name) for name in RuleForm.__struct_fields__}
    return typed | {"filters": {form.filter_field: form.filter_value} if form.filter_field else {}}


def back(visit: Visit) -> Go:
    """To the page as it is now."""
    return Go(visit.base + "/settings/notifications")


async def done(visit: Visit, handler: Any, path: Mapping[str, str], **more: Any) -> Html | Go:
    """Have a handler of the REST API do it."""
    answer = await asked(visit, handler, path=path, **more)
    return await shown(visit, ActShown(answer)) if isinstance(answer, Refusal) else back(visit)


async def keep_rule(visit: Visit) -> Html | Go:
    """Add a rule, or replace one whole."""
    form: RuleForm = visit.form
    try:
        params = form.params()
    except BadParams as error:
        return await shown(visit, ActShown(BAD_RULE.saying(str(error)[:300]), rule=form))
    fields = {"kind": form.kind, "name": form.name, "channels": form.channels, "params": params}
    if form.id:
        answer = await asked(visit, alert_rules.put_rule, RuleChange, fields, path={"ruleId": form.id})
    else:
        answer = await asked(visit, alert_rules.post_rule, RuleChange, fields)
    return await shown(visit, ActShown(answer, rule=form)) if isinstance(answer, Refusal) else back(visit)


async def try_rule(visit: Visit) -> Html:
    """Say how often a rule that was typed would have fired."""
    form: RuleForm = visit.form
    try:
        fields = {"kind": form.kind, "params": form.params()}
    except BadParams as error:
        return await shown(visit, ActShown(BAD_RULE.saying(str(error)[:300]), rule=form))
    backtest = await asked(visit, alert_rules.post_backtest, RuleBacktest, fields)
    if isinstance(backtest, Refusal):
        return await shown(visit, ActShown(backtest, rule=form))
    return await shown(visit, ActShown(fired=backtest, rule=form))


async def mute(visit: Visit) -> Html | Go:
    """Have a rule keep still for some hours, or speak again."""
    hours = min(max(visit.form.hours, 0), 24 * 365)
    until = timestamp(visit.means.now() + timedelta(hours=hours)) if hours else None
    path = {"ruleId": visit.form.id}
    return await done(visit, alert_rules.post_mute, path, body=MuteChange, fields={"until": until})


async def remove_rule(visit: Visit) -> Html | Go:
    """Remove a rule."""
    return await done(visit, alert_rules.delete_rule, {"ruleId": visit.form.id})


async def replay(visit: Visit) -> Html | Go:
    """Have a message sent once more."""
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
    PageRoute("POST", NOTIFICATIONS + "/rule", "ORG_MANAGE", keep_rule, form=RuleForm),
    PageRoute("POST", NOTIFICATIONS + "/rule/try", "ORG_MANAGE", try_rule, form=RuleForm),
    PageRoute("POST", NOTIFICATIONS + "/rule/mute", "ORG_MANAGE", mute, form=MuteForm),
    PageRoute("POST", NOTIFICATIONS + "/rule/remove", "ORG_MANAGE", remove_rule, form=AlertTarget),
    PageRoute("POST", NOTIFICATIONS + "/replay", "ORG_MANAGE", replay, form=AlertTarget),
)
