"""Settings: rules of alerts. The form of one, which is the second step to an alert, and what is done to it.

Keeps, tries, mutes and removes them by the handlers of the REST API.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from protocol.alerts import RULE_KINDS, RuleKind
from protocol.refusals import BAD_RULE, NO_SUCH_RULE, Refusal
from protocol.rest.alerts import ChannelShown, MuteChange, RuleBacktest, RuleChange
from protocol.rest.query import timestamp
from svc.domain.alerts.params import BadParams
from svc.domain.detect.detectors.table import DETECTORS
from svc.front.api.alerts import alert_channels, alert_rules
from svc.web.alerts.alert_view import ActShown, AlertTarget, MuteForm, RuleForm
from svc.web.alerts.alerts_text import CHANNEL_KINDS, GROUPS, NAME, RULE_FIELDS, at_field
from svc.web.alerts.notifications import NAMED, NOTIFICATIONS, back, done
from svc.web.shell.forms import asked
from svc.web.shell.page import Go, Html, PageRoute, Visit

#: What a new rule is about unless somebody chooses.
USUAL: Final[RuleKind] = "case.opened"


async def page(visit: Visit) -> Html | Go | Refusal:
    """The form of a new rule of the kind that the address names, or of one that is there."""
    rules = await alert_rules.get_rules(visit.call)
    if rule_id := visit.query.get("id"):
        for rule in rules:
            if rule.id == rule_id:
                return await rule_page(visit, RuleForm.of(rule))
        return NO_SUCH_RULE
    channels = await alert_channels.get_channels(visit.call)
    if not channels:
        # Nobody could be told: the first step comes first.
        return Go(visit.base + "/settings/notifications/channel")
    asked_kind, asked_channel = visit.query.get("kind"), visit.query.get("channel")
    kind = next((kind for kind in RULE_KINDS if kind == asked_kind), USUAL)
    chosen = [channel.id for channel in channels if channel.id == asked_channel or len(channels) == 1]
    return await rule_page(visit, RuleForm.new(kind, chosen, rules))


async def rule_page(visit: Visit, form: RuleForm, act: ActShown | None = None) -> Html:
    """The form, with what an act came to."""
    act = act or ActShown()
    channels: Sequence[ChannelShown] = await alert_channels.get_channels(visit.call)
    kind = next((kind for kind in RULE_KINDS if kind == form.kind), USUAL)
    field, fault = ("", "") if act.refusal is None else at_field(act.refusal, kind)
    field_names = {"name", *(rule_field.name for rule_field in RULE_FIELDS[kind])}
    context = {
        "tab": "notifications",
        "form": form,
        "kind": kind,
        "said": act,
        # A fault of a field that the form has not is said above it.
        "wrong": {field if field in field_names else "": fault},
        "channels": channels,
        "name_field": NAME,
        "fields": RULE_FIELDS[kind],
        "more_hints": {"detectors": ": " + ", ".join(DETECTORS) + "."},
        "groups": GROUPS,
        "channel_kinds": CHANNEL_KINDS,
        "unwatched": visit.means.alerts.unwatched(kind),
        "named": NAMED,
    }
    return Html("alerts/rule", context, status=act.status, secret=act.secret is not None)


async def keep_rule(visit: Visit) -> Html | Go:
    """Add a rule, or replace one whole."""
    form: RuleForm = visit.form
    try:
        params = form.params()
    except BadParams as error:
        return await rule_page(visit, form, ActShown(BAD_RULE.saying(str(error)[:300])))
    fields = {"kind": form.kind, "name": form.name, "channels": form.channels, "params": params}
    if form.id:
        answer = await asked(visit, alert_rules.put_rule, RuleChange, fields, path={"ruleId": form.id})
    else:
        answer = await asked(visit, alert_rules.post_rule, RuleChange, fields)
    return await rule_page(visit, form, ActShown(answer)) if isinstance(answer, Refusal) else back(visit)


async def try_rule(visit: Visit) -> Html:
    """Say how often a rule that was typed would have fired."""
    form: RuleForm = visit.form
    try:
        fields = {"kind": form.kind, "params": form.params()}
    except BadParams as error:
        return await rule_page(visit, form, ActShown(BAD_RULE.saying(str(error)[:300])))
    backtest = await asked(visit, alert_rules.post_backtest, RuleBacktest, fields)
    act = ActShown(backtest) if isinstance(backtest, Refusal) else ActShown(fired=backtest)
    return await rule_page(visit, form, act)


async def mute(visit: Visit) -> Html | Go:
    """Have a rule keep still for some hours, or speak again."""
    hours = min(max(visit.form.hours, 0), 24 * 365)
    until = timestamp(visit.means.now() + timedelta(hours=hours)) if hours else None
    path = {"ruleId": visit.form.id}
    return await done(visit, alert_rules.post_mute, path, body=MuteChange, fields={"until": until})


async def remove_rule(visit: Visit) -> Html | Go:
    """Remove a rule."""
    return await done(visit, alert_rules.delete_rule, {"ruleId": visit.form.id})


_RULE: Final = NOTIFICATIONS + "/rule"

PAGES: Final = (
    PageRoute("GET", _RULE, "ORG_MANAGE", page),
    PageRoute("POST", _RULE, "ORG_MANAGE", keep_rule, form=RuleForm),
    PageRoute("POST", _RULE + "/try", "ORG_MANAGE", try_rule, form=RuleForm),
    PageRoute("POST", _RULE + "/mute", "ORG_MANAGE", mute, form=MuteForm),
    PageRoute("POST", _RULE + "/remove", "ORG_MANAGE", remove_rule, form=AlertTarget),
)
