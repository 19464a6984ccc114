"""`{p}/alert-channels`: where alerts go, their secrets sealed and never shown again but for one we made.

Secrets: one comes in with a body, is sealed at once and goes out only over its own channel. Whoever changes
where a channel leads must bring its secret again, so that nobody can have it sent to a host of theirs; the
secret that signs a webhook is not sent, so it stays.
"""

from __future__ import annotations

import secrets
from typing import Any, Final
from uuid import uuid4

import attrs
import msgspec
import trio

from protocol.alerts import (
    BOTH_SECRETS_FOR,
    CHANNELS_MAX,
    AlertChannel,
    AlertPlace,
    ChannelSecret,
    Undelivered,
)
from protocol.refusals import (
    BAD_CHANNEL,
    BLANK_NAME,
    CHANNEL_KEEPS_KIND,
    CHANNEL_TAKEN,
    NO_SUCH_CHANNEL,
    NOTHING_TO_ROTATE,
    TOO_MANY_CHANNELS,
    Refusal,
    Refused,
)
from protocol.rest.alerts import ChannelChange, ChannelMade, ChannelShown, ChannelTested
from protocol.rest.orgs import Removed
from protocol.rest.query import timestamp, timestamp_or_none
from protocol.sealed import Lost
from svc.domain.accounts.access import may
from svc.domain.alerts.channels.table import CHANNELS, fault_of, read_fields
from svc.domain.alerts.channels.webhook import secret_of
from svc.domain.alerts.composing import trial_message
from svc.domain.alerts.params import BadParams
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.alerts.channels import AlertChannelStore

_SECRET_BYTES: Final = 32


def _store(call: Call[Any]) -> AlertChannelStore:
    return AlertChannelStore(call.means.database)


def _channel_view(call: Call[Any], channel: AlertChannel) -> ChannelShown:
    now, manages = call.means.now(), call.role is not None and may(call.role, "ORG_MANAGE")
    rests = channel.rests_until is not None and channel.rests_until > now
    opens = channel.sealed is not None and call.means.seals.opens(channel.sealed)
    return ChannelShown(
        id=str(channel.id),
        kind=channel.kind,
        name=channel.name,
        params=dict(channel.params) if manages else None,
        leads_to=CHANNELS[channel.kind].leads_to(read_fields(channel.kind, channel.params)),
        secret="none" if channel.sealed is None else "sealed" if opens else "lost",
        state="off" if channel.off_at is not None else "resting" if rests else "ready",
        failures=channel.failures,
        rests_until=timestamp_or_none(channel.rests_until) if rests else None,
        last_error=channel.last_error,
        last_sent_at=timestamp_or_none(channel.last_sent_at),
        created_at=timestamp(channel.created_at),
        updated_at=timestamp(channel.updated_at),
    )


async def _channel(call: Call[Any]) -> AlertChannel:
    """The channel of the path. Raises `Refused`."""
    channel = await _store(call).one(call.project.id, call.id_of("channelId", NO_SUCH_CHANNEL))
    if channel is None:
        raise Refused(NO_SUCH_CHANNEL)
    return channel


async def get_channels(call: Call[None]) -> list[ChannelShown]:
    """The alert channels of the project, without their secrets."""
    return [_channel_view(call, channel) for channel in await _store(call).list(call.project.id)]


async def post_channel(call: Call[ChannelChange]) -> ChannelMade | Refusal:
    """Add a channel. Without a secret a webhook gets one of ours, shown this once."""
    now, body = call.means.now(), call.body
    new = AlertChannel(call.project.id, uuid4(), body.kind, "", {}, None, now, now)
    secret = None
    if CHANNELS[body.kind].credential == "made" and body.secret is None:
        secret = secret_of(secrets.token_bytes(_SECRET_BYTES))
    channel = await _put(call, new, secret)
    return channel if isinstance(channel, Refusal) else ChannelMade(channel, secret)


async def put_channel(call: Call[ChannelChange]) -> ChannelShown | Refusal:
    """Replace a channel, and turn it on where it was off. Without a secret the stored one stays."""
    channel = await _channel(call)
    if channel.kind != call.body.kind:
        return CHANNEL_KEEPS_KIND
    return await _put(call, channel, None)


async def _put(
    call: Call[ChannelChange], channel: AlertChannel, new_secret: str | None
) -> ChannelShown | Refusal:
    body = call.body
    secret = new_secret if body.secret is None else body.secret.strip()
    try:
        fields = read_fields(body.kind, body.params)
    except BadParams as bad:
        return BAD_CHANNEL.saying(str(bad))
    fault = fault_of(
        body.kind, fields, secret, kept=channel.sealed is not None, mails=call.means.alerts.mails
    )
    params = msgspec.to_builtins(fields)
    sends = CHANNELS[body.kind].credential in ("given", "optional")
    moved = sends and channel.sealed is not None and channel.params != params
    if fault is None and moved and secret is None:
        fault = "send the secret again: it would go to another place than before"
    if fault is not None:
        return BAD_CHANNEL.saying(fault)
    if not body.name.strip():
        return BLANK_NAME
    sealed = channel.sealed if secret is None else _sealed(call, channel, ChannelSecret(secret=secret))
    changed = attrs.evolve(
        channel, name=body.name.strip(), params=params, sealed=sealed, updated_at=call.means.now()
    )
    return await _store_channel(call, changed)


async def _store_channel(call: Call[Any], channel: AlertChannel) -> ChannelShown | Refusal:
    match await _store(call).put(channel, call.caller.label):
        case "taken":
            return CHANNEL_TAKEN
        case "too many":
            return TOO_MANY_CHANNELS.saying(f"{TOO_MANY_CHANNELS.message} ({CHANNELS_MAX})")
        case None:
            fresh = attrs.evolve(channel, failures=0, rests_until=None, last_error=None, off_at=None)
            return _channel_view(call, fresh)


def _sealed(call: Call[Any], channel: AlertChannel, secret: ChannelSecret) -> str:
    return call.means.seals.seal(msgspec.json.encode(secret).decode(), channel.purpose)


async def delete_channel(call: Call[None]) -> Removed | Refusal:
    """Remove a channel with its secret and what waits for it; rules that led to it no longer do."""
    channel = await _channel(call)
    return Removed() if await _store(call).remove(channel, call.caller.label) else NO_SUCH_CHANNEL


async def rotate_channel(call: Call[None]) -> ChannelMade | Refusal:
    """Give a webhook a new signing secret, shown this once; for 24 hours the old one signs as well."""
    channel = await _channel(call)
    if CHANNELS[channel.kind].credential != "made" or channel.sealed is None:
        return NOTHING_TO_ROTATE
    opened = call.means.seals.open(channel.sealed, channel.purpose)
    new_secret = secret_of(secrets.token_bytes(_SECRET_BYTES))
    secret = ChannelSecret(secret=new_secret)
    if not isinstance(opened, Lost):
        previous = msgspec.json.decode(opened, type=ChannelSecret)
        until = call.means.now() + BOTH_SECRETS_FOR
        secret = ChannelSecret(secret=new_secret, previous=previous.secret, previous_until=until)
    changed = attrs.evolve(channel, sealed=_sealed(call, channel, secret), updated_at=call.means.now())
    if await _store(call).put(changed, call.caller.label, "alert_channel.rotate") is not None:
        return NO_SUCH_CHANNEL
    return ChannelMade(_channel_view(call, changed), new_secret)


async def try_channel(call: Call[None]) -> ChannelTested | Refusal:
    """Send a test message over a channel, once and at once."""
    channel = await _channel(call)
    await _store(call).tested(channel, call.caller.label)
    delivery_id = uuid4()
    location = AlertPlace(call.project.org_slug, call.project.slug)
    message = trial_message(location, channel.name, timestamp(call.means.now()), delivery_id.hex)
    started_s = trio.current_time()
    outcome = await call.means.alerts.try_channel(channel, message, delivery_id)
    took_ms = round((trio.current_time() - started_s) * 1000)
    if isinstance(outcome, Undelivered):
        return ChannelTested(False, outcome.status, outcome.why, took_ms)
    return ChannelTested(True, outcome, "taken", took_ms)


_CHANNELS: Final = PROJECT + "/alert-channels"
_ONE: Final = _CHANNELS + "/{channelId}"
_FAULTS: Final = (BAD_CHANNEL, BLANK_NAME, CHANNEL_TAKEN, TOO_MANY_CHANNELS)

ROUTES: Final = (
    Route("GET", _CHANNELS, "ORG_VIEW", get_channels, list[ChannelShown]),
    Route(
        "POST", _CHANNELS, "ORG_MANAGE", post_channel, ChannelMade, body=ChannelChange, status=201,
        refusals=_FAULTS,
    ),
    Route(
        "PUT", _ONE, "ORG_MANAGE", put_channel, ChannelShown, body=ChannelChange,
        refusals=(*_FAULTS, NO_SUCH_CHANNEL, CHANNEL_KEEPS_KIND),
    ),
    Route("DELETE", _ONE, "ORG_MANAGE", delete_channel, Removed, refusals=(NO_SUCH_CHANNEL,)),
    Route(
        "POST", _ONE + "/rotate", "ORG_MANAGE", rotate_channel, ChannelMade,
        refusals=(NO_SUCH_CHANNEL, NOTHING_TO_ROTATE),
    ),
    Route("POST", _ONE + "/test", "ORG_MANAGE", try_channel, ChannelTested, refusals=(NO_SUCH_CHANNEL,)),
)  # fmt: skip
