"""Settings: channels of alerts. The form of one, which is the first step to an alert, and what is done to it.

Adds, changes, tests, rotates and removes them by the handlers of the REST API. Secrets: one that comes in
with a form is sealed at once; one that we made stands in the answer to its making alone.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.alerts import CHANNEL_KINDS
from protocol.refusals import NO_SUCH_CHANNEL, Refusal
from protocol.rest.alerts import ChannelChange, ChannelMade
from svc.front.api.alerts import alert_channels, alert_rules
from svc.web.alerts.alert_view import ActShown, AlertTarget, ChannelForm, RuleForm, channel_fields
from svc.web.alerts.alerts_text import FIRST_KIND
from svc.web.alerts.notifications import NOTIFICATIONS, back, done, shown
from svc.web.alerts.rules import USUAL, rule_page
from svc.web.shell.forms import asked
from svc.web.shell.page import Go, Html, PageRoute, Visit


async def page(visit: Visit) -> Html | Refusal:
    """The form of a new channel of the kind that the address names, or of one that is there."""
    channels = await alert_channels.get_channels(visit.call)
    if channel_id := visit.query.get("id"):
        for channel in channels:
            if channel.id == channel_id:
                return _page(visit, ChannelForm.of(channel))
        return NO_SUCH_CHANNEL
    asked_kind = visit.query.get("kind")
    kind = next((kind for kind in CHANNEL_KINDS if kind == asked_kind), FIRST_KIND)
    return _page(visit, ChannelForm.new(kind, channels))


def _page(visit: Visit, form: ChannelForm, act: ActShown | None = None) -> Html:
    act = act or ActShown()
    context = {"tab": "notifications", "said": act}
    context |= channel_fields(form, act.refusal, mails=visit.means.alerts.mails)
    return Html("alerts/channel", context, status=act.status, secret=act.secret is not None)


async def keep_channel(visit: Visit) -> Html | Go:
    """Add a channel, or replace one whole. Without a secret the stored one stays."""
    form: ChannelForm = visit.form
    if form.id:
        answer = await asked(
            visit, alert_channels.put_channel, ChannelChange, form.fields(), path={"channelId": form.id}
        )
    else:
        answer = await asked(visit, alert_channels.post_channel, ChannelChange, form.fields())
    if isinstance(answer, Refusal):
        return _page(visit, form, ActShown(answer))
    channel = answer.channel if isinstance(answer, ChannelMade) else answer
    secret = _secret(answer)
    if not form.step:
        return back(visit) if secret is None else await shown(visit, ActShown(secret=secret))
    return await _second_step(visit, msgspec.structs.replace(form, id=channel.id), secret)


async def _second_step(visit: Visit, form: ChannelForm, secret: tuple[str, str] | None) -> Html | Go:
    """The rule, once a test message has arrived; the channel again where none did."""
    tested = await asked(visit, alert_channels.try_channel, path={"channelId": form.id})
    if isinstance(tested, Refusal):
        return await shown(visit, ActShown(tested, secret=secret))
    act = ActShown(secret=secret, tested=(form.id, tested))
    if not tested.delivered:
        return _page(visit, form, act)
    rules = await alert_rules.get_rules(visit.call)
    return await rule_page(visit, RuleForm.new(USUAL, [form.id], rules), act)


def _secret(answer: Any) -> tuple[str, str] | None:
    if not isinstance(answer, ChannelMade) or answer.secret is None:
        return None
    return answer.channel.name, answer.secret


async def rotate(visit: Visit) -> Html | Go:
    """Give a webhook a new signing secret."""
    answer = await asked(visit, alert_channels.rotate_channel, path={"channelId": visit.form.id})
    if isinstance(answer, Refusal):
        return await shown(visit, ActShown(answer))
    return await shown(visit, ActShown(secret=_secret(answer)))


async def test(visit: Visit) -> Html:
    """Send a test message."""
    tested = await asked(visit, alert_channels.try_channel, path={"channelId": visit.form.id})
    if isinstance(tested, Refusal):
        return await shown(visit, ActShown(tested))
    return await shown(visit, ActShown(tested=(visit.form.id, tested)))


async def remove_channel(visit: Visit) -> Html | Go:
    """Remove a channel."""
    return await done(visit, alert_channels.delete_channel, {"channelId": visit.form.id})


PAGES: Final = (
    PageRoute("GET", NOTIFICATIONS + "/channel", "ORG_MANAGE", page),
    PageRoute("POST", NOTIFICATIONS + "/channel", "ORG_MANAGE", keep_channel, form=ChannelForm),
    PageRoute("POST", NOTIFICATIONS + "/channel/test", "ORG_MANAGE", test, form=AlertTarget),
    PageRoute("POST", NOTIFICATIONS + "/channel/rotate", "ORG_MANAGE", rotate, form=AlertTarget),
    PageRoute("POST", NOTIFICATIONS + "/channel/remove", "ORG_MANAGE", remove_channel, form=AlertTarget),
)
