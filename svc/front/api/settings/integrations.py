"""`{o}/integrations`: model providers and Git hosts, their secrets sealed and never shown again.

Secrets: a secret comes in with a body, is sealed at once and goes out only to its own provider. Whoever
changes where it goes must bring it again, so that nobody can have it sent to a host of theirs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import attrs

from protocol.refusals import (
    BAD_INTEGRATION,
    BLANK_NAME,
    INTEGRATION_TAKEN,
    NO_SUCH_INTEGRATION,
    TOO_MANY_INTEGRATIONS,
    Refusal,
    Refused,
)
from protocol.rest.orgs import Removed
from protocol.rest.query import timestamp
from protocol.rest.settings import IntegrationChange, IntegrationShown, Reached
from protocol.sealed import Lost
from svc.front.api.routes import ORG, Route
from svc.front.auth.calls import Call
from svc.front.ports import Reach, Seals
from svc.store.accounts.integrations import Integration, IntegrationStore, NameTaken, TooMany
from svc.store.agents.settings import AgentSettingStore


def _integration_view(integration: Integration, seals: Seals) -> IntegrationShown:
    return IntegrationShown(
        str(integration.id),
        integration.kind,
        integration.provider,
        integration.name,
        integration.base_url,
        integration.username,
        "none" if integration.sealed is None else "sealed" if seals.opens(integration.sealed) else "lost",
        timestamp(integration.created_at),
        timestamp(integration.updated_at),
        integration.region,
    )


async def _integration(call: Call[object]) -> Integration:
    """The integration of the path. Raises `Refused`."""
    integration_id = call.id_of("integrationId", NO_SUCH_INTEGRATION)
    integration = await IntegrationStore(call.means.database).one(call.org.id, integration_id)
    if integration is None:
        raise Refused(NO_SUCH_INTEGRATION)
    return integration


async def get_integrations(call: Call[None]) -> list[IntegrationShown]:
    """The integrations of the organization, without their secrets.

    A key, and whoever sees single projects, sees those that the agents of its projects use.
    """
    seals = call.means.seals
    used_ids = None if call.project_ids is None else await _used_in(call, call.project_ids)
    return [
        _integration_view(integration, seals)
        for integration in await IntegrationStore(call.means.database).list(call.org.id)
        if used_ids is None or integration.id in used_ids
    ]


async def _used_in(call: Call[object], project_ids: Collection[int]) -> Collection[UUID]:
    used_ids: set[UUID] = set()
    for project_id in project_ids:
        settings = await AgentSettingStore(call.means.database).of(project_id)
        used_ids |= {choice.integration_id for choice in settings.models.values()}
        if settings.repository is not None and settings.repository.integration_id is not None:
            used_ids.add(settings.repository.integration_id)
    return used_ids


async def post_integration(call: Call[IntegrationChange]) -> IntegrationShown | Refusal:
    """Add a model provider or a Git host. Its secret is sealed and never shown again."""
    now = call.means.now()
    body = call.body
    new = Integration(uuid4(), call.org.id, body.kind, "", "", None, None, None, now, now)
    return await _put(call, new, secret_needed=body.provider != "openai_compatible")


async def put_integration(call: Call[IntegrationChange]) -> IntegrationShown | Refusal:
    """Replace an integration. Without a secret the stored one stays, as long as it goes to the same place."""
    integration = await _integration(call)
    body = call.body
    same_place = (integration.kind, integration.provider, integration.base_url, integration.region) == (
        body.kind,
        body.provider,
        _base_url(body.base_url),
        body.region,
    )
    if not same_place and body.secret is None and integration.sealed is not None:
        return BAD_INTEGRATION.saying("send the secret again: it would go to another place than before")
    return await _put(call, integration, secret_needed=False)


async def _put(
    call: Call[IntegrationChange], integration: Integration, *, secret_needed: bool
) -> IntegrationShown | Refusal:
    body, seals = call.body, call.means.seals
    fault = _fault(body, call.means.reach)
    if fault is None and secret_needed and body.secret is None:
        fault = f"{body.provider} needs a secret"
    if fault is not None:
        return BAD_INTEGRATION.saying(fault)
    if not body.name.strip():
        return BLANK_NAME
    changed = attrs.evolve(
        integration,
        kind=body.kind,
        provider=body.provider,
        name=body.name.strip(),
        base_url=_base_url(body.base_url),
        username=body.username,
        region=body.region,
        sealed=integration.sealed
        if body.secret is None
        else seals.seal(body.secret.strip(), integration.purpose),
        updated_at=call.means.now(),
    )
    match await IntegrationStore(call.means.database).put(changed, call.caller.label):
        case NameTaken():
            return INTEGRATION_TAKEN
        case TooMany():
            return TOO_MANY_INTEGRATIONS
        case None:
            return _integration_view(changed, seals)


def _base_url(address: str | None) -> str | None:
    return address.strip().rstrip("/") or None if address is not None else None


def _fault(body: IntegrationChange, reach: Reach) -> str | None:
    """What is wrong with a body whose types are right."""
    providers = reach.providers[body.kind]
    if body.provider not in providers:
        return f"a {body.kind} is one of {', '.join(providers)}"
    base_url = _base_url(body.base_url)
    if body.provider == "aws_bedrock" and body.region is None:
        return (
            "aws_bedrock needs a region; with a username (the access key's id) its secret is that of the key"
        )
    if base_url is None:
        if providers[body.provider] is None:
            return f"{body.provider} needs a base_url"
    elif not _is_web_address(base_url):
        return "base_url must be an http or https address without credentials, query or fragment"
    if body.secret is not None and not (body.secret.strip() and _plain(body.secret.strip())):
        return "the secret must be printable ASCII"
    return None


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    bare = not (parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme in ("http", "https") and bool(host) and bare and _plain(text) and " " not in text


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


async def delete_integration(call: Call[None]) -> Removed | Refusal:
    """Remove an integration and its secret."""
    integration = await _integration(call)
    if not await IntegrationStore(call.means.database).remove(integration, call.caller.label):
        return NO_SUCH_INTEGRATION
    return Removed()


async def try_integration(call: Call[None]) -> Reached | Refusal:
    """Ask the other side whether it is there and takes the credentials. It changes nothing."""
    integration = await _integration(call)
    secret = None
    if integration.sealed is not None:
        opened = call.means.seals.open(integration.sealed, integration.purpose)
        if isinstance(opened, Lost):
            return Reached(False, False, None, opened.reason, 0)
        secret = opened
    return await call.means.reach.ask(
        integration.kind,
        integration.provider,
        integration.base_url,
        secret,
        username=integration.username,
        region=integration.region,
    )


_ONE: Final = ORG + "/integrations/{integrationId}"
_FAULTS: Final = (BAD_INTEGRATION, BLANK_NAME, INTEGRATION_TAKEN, TOO_MANY_INTEGRATIONS)

ROUTES: Final = (
    Route("GET", ORG + "/integrations", "ORG_VIEW", get_integrations, list[IntegrationShown]),
    Route(
        "POST", ORG + "/integrations", "ORG_ADMIN", post_integration, IntegrationShown,
        body=IntegrationChange, status=201, refusals=_FAULTS,
    ),
    Route(
        "PUT", _ONE, "ORG_ADMIN", put_integration, IntegrationShown, body=IntegrationChange,
        refusals=(*_FAULTS, NO_SUCH_INTEGRATION),
    ),
    Route("DELETE", _ONE, "ORG_ADMIN", delete_integration, Removed, refusals=(NO_SUCH_INTEGRATION,)),
    Route("POST", _ONE + "/test", "ORG_ADMIN", try_integration, Reached, refusals=(NO_SUCH_INTEGRATION,)),
)  # fmt: skip
