"""Settings: the channels of notifications, as the page of notifications shows them.

Adds, changes, tests, rotates and removes them by the handlers of the REST API. Secrets: one that comes in
with a form is sealed at once; one that we made stands in the answer to its making alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.alerts import ChannelChange, ChannelMade
from svc.front.api import alert_channels
from svc.web.alerts.alert_view import AlertTarget, ChannelForm
from svc.web.alerts.notifications import NOTIFICATIONS, ActShown, back, done, shown
from svc.web.shell.forms import asked
from svc.web.shell.page import Go, Html, PageRoute, Visit


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
        return await shown(visit, ActShown(answer, channel=msgspec.structs.replace(form, secret="")))
    return await _with_secret(visit, answer) if isinstance(answer, ChannelMade) else back(visit)


async def _with_secret(visit: Visit, answer: ChannelMade) -> Html | Go:
    if answer.secret is None:
        return back(visit)
    return await shown(visit, ActShown(secret=(answer.channel.name, answer.secret)))


async def rotate(visit: Visit) -> Html | Go:
    """Give a webhook a new signing secret."""
    answer = await asked(visit, alert_channels.rotate_channel, path={"channelId": visit.form.id})
    if isinstance(answer, Refusal):
        return await shown(visit, ActShown(answer))
    return await _with_secret(visit, answer)


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
    PageRoute("POST", NOTIFICATIONS + "/channel", "ORG_MANAGE", keep_channel, form=ChannelForm),
    PageRoute("POST", NOTIFICATIONS + "/channel/test", "ORG_MANAGE", test, form=AlertTarget),
    PageRoute("POST", NOTIFICATIONS + "/channel/rotate", "ORG_MANAGE", rotate, form=AlertTarget),
    PageRoute("POST", NOTIFICATIONS + "/channel/remove", "ORG_MANAGE", remove_channel, form=AlertTarget),
)
