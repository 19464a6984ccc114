"""Settings: model providers and Git. Kept, replaced, tested and removed by the handlers of the REST API.

Secrets: one comes in with a form and is sealed at once; no page holds it again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.settings import IntegrationChange, Reached
from protocol.sealed import Unlogged
from svc.front.api.settings import integrations as api
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

KINDS: Final = {"model_provider": "Model providers", "git": "Git"}
NAMES: Final = {
    "anthropic": "Anthropic",
    "openai": "OpenAI",
    "google": "Google Gemini",
    "openai_compatible": "OpenAI-compatible (Ollama, vLLM, a gateway)",
    "aws_bedrock": "Amazon Bedrock",
    "github": "GitHub",
    "gitlab": "GitLab",
}


class IntegrationForm(Unlogged):
    """An integration as it was typed. Secrets: never log one."""

    provider: str = ""
    name: str = ""
    base_url: str = ""
    username: str = ""
    region: str = ""
    secret: str = ""
    id: str = ""


class IntegrationId(msgspec.Struct):
    """Which integration."""

    id: str


async def page(visit: Visit) -> Html:
    """The integrations of the organization."""
    return await _page(visit)


async def _page(
    visit: Visit,
    refusal: Refusal | None = None,
    form: IntegrationForm | None = None,
    tested: tuple[str, Reached] | None = None,
) -> Html:
    listed = await api.get_integrations(visit.call)
    context = {
        "tab": "integrations",
        "groups": [
            (kind, label, [integration for integration in listed if integration.kind == kind])
            for kind, label in KINDS.items()
        ],
        "count": len(listed),
        "providers": visit.means.reach.providers,
        "names": NAMES,
        "usual_urls": {
            provider: url for urls in visit.means.reach.providers.values() for provider, url in urls.items()
        },
        "form": form or IntegrationForm(),
        "refusal": refusal,
        "tested": tested,
        "administers": visit.administers,
    }
    return Html("account/integrations", context, status=refusal.status if refusal else 200)


async def keep(visit: Visit) -> Html | Go:
    """Add one, or replace one whole. Without a secret the stored one stays."""
    form: IntegrationForm = visit.form
    kinds = visit.means.reach.providers
    fields: dict[str, Any] = {
        "kind": next(
            (kind for kind, providers in kinds.items() if form.provider in providers), form.provider
        ),
        "provider": form.provider,
        "name": form.name,
        "base_url": form.base_url.strip() or None,
        "username": form.username.strip() or None,
        "region": form.region.strip() or None,
        "secret": form.secret or None,
    }
    if form.id:
        path = {"integrationId": form.id}
        answer = await asked(visit, api.put_integration, IntegrationChange, fields, path=path)
    else:
        answer = await asked(visit, api.post_integration, IntegrationChange, fields)
    if isinstance(answer, Refusal):
        return await _page(visit, answer, msgspec.structs.replace(form, secret=""))
    return Go(visit.base + "/settings/integrations")


async def test(visit: Visit) -> Html:
    """Ask the other side whether it is there and takes the credentials."""
    answer = await asked(visit, api.try_integration, path={"integrationId": visit.form.id})
    if isinstance(answer, Refusal):
        return await _page(visit, answer)
    return await _page(visit, tested=(visit.form.id, answer))


async def remove(visit: Visit) -> Html | Go:
    """Remove one and its secret."""
    answer = await asked(visit, api.delete_integration, path={"integrationId": visit.form.id})
    if isinstance(answer, Refusal):
        return await _page(visit, answer)
    return Go(visit.base + "/settings/integrations")


_INTEGRATIONS: Final = PROJECT + "/settings/integrations"

PAGES: Final = (
    PageRoute("GET", _INTEGRATIONS, "ORG_VIEW", page, of_org=True),
    PageRoute("POST", _INTEGRATIONS, "ORG_ADMIN", keep, form=IntegrationForm),
    PageRoute("POST", _INTEGRATIONS + "/test", "ORG_ADMIN", test, form=IntegrationId),
    PageRoute("POST", _INTEGRATIONS + "/remove", "ORG_ADMIN", remove, form=IntegrationId),
)
