"""Asking a model provider or a Git host whether it is there and takes our credentials.

Called on demand by the integrations API. One GET without a body, no redirects, a deadline; nothing of the
answer but its status leaves here. The cloud's model service is asked for its list of models, in the region of
the integration and signed as its runs are.

Secrets: the credential goes into one header of one request and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import attrs
import trio

from protocol.rest.settings import Reached
from svc.outside.http import HttpClient, Unreached
from svc.outside.models.sigv4 import pair_of, signed


@attrs.frozen
class Probe:
    """How one provider is asked: its usual address, a path that only lists, and the header that signs in."""

    base_url: str | None
    path: str
    header: str
    form: str = "{secret}"
    extra: tuple[tuple[str, str], ...] = ()
    #: The service to sign for, where the credential is a key pair.
    signed_for: str | None = None


#: The providers that an integration can name, by kind.
PROBES: Final[dict[str, dict[str, Probe]]] = {
    "model_provider": {
        "anthropic": Probe(
            "https://api.anthropic.com",
            "/v1/models",
            "x-api-key",
            extra=(("anthropic-version", "2023-06-01"),),
        ),
        "openai": Probe("https://api.openai.com/v1", "/models", "authorization", "Bearer {secret}"),
        "google": Probe(
            "https://generativelanguage.googleapis.com", "/v1beta/models", "x-goog-api-key"
        ),
        "aws_bedrock": Probe(
            "https://bedrock-runtime.{region}.amazonaws.com",
            "/foundation-models",
            "authorization",
            "Bearer {secret}",
            signed_for="bedrock",
        ),
        "openai_compatible": Probe(None, "/models", "authorization", "Bearer {secret}"),
    },
    "git": {
        "github": Probe("https://api.github.com", "/user", "authorization", "Bearer {secret}"),
        "gitlab": Probe("https://gitlab.com/api/v4", "/user", "private-token"),
    },
}  # fmt: skip


@attrs.frozen
class Providers:
    """Implements the front's `Reach`. `client` bounds what is waited for and which addresses may be asked."""

    client: HttpClient
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def providers(self) -> Mapping[str, Mapping[str, str | None]]:
        """By kind and name; the usual base address of each, with `{region}` where it has one, None where it
        must be given.
        """
        return {
            kind: {name: probe.base_url for name, probe in probes.items()} for kind, probes in PROBES.items()
        }

    async def ask(
        self,
        kind: str,
        provider: str,
        base_url: str | None,
        secret: str | None,
        *,
        username: str | None = None,
        region: str | None = None,
    ) -> Reached:
        """Ask once. Never raises for what the other side does or fails to do."""
        url, headers = self.asking(kind, provider, base_url, secret, username=username, region=region)
        started_s = trio.current_time()
        status = None
        try:
            status = (await self.client.ask("GET", url, headers=headers, read=False)).status
            accepted = 200 <= status < 300
            message = _MEANINGS.get(status, "accepted" if accepted else f"answered with status {status}")
        except Unreached as unreached:
            accepted, message = False, str(unreached)
        took_ms = round((trio.current_time() - started_s) * 1000)
        return Reached(status is not None, accepted, status, message, took_ms)

    def asking(
        self,
        kind: str,
        provider: str,
        base_url: str | None,
        secret: str | None,
        *,
        username: str | None = None,
        region: str | None = None,
    ) -> tuple[str, dict[str, str]]:
        """The URL of the probe, and its headers."""
        probe = PROBES[kind][provider]
        base = (base_url or probe.base_url or "").replace("{region}", region or "us-east-1").rstrip("/")
        headers, url = dict(probe.extra), _listing(base) + probe.path
        if secret is not None and probe.signed_for is not None and username is not None:
            headers = signed(
                "GET",
                url,
                {"accept": "application/json"},
                b"",
                pair_of(username, secret),
                service=probe.signed_for,
                region=region or "us-east-1",
                at=self.now(),
            )
        elif secret is not None:
            headers[probe.header] = probe.form.format(secret=secret)
        return url, headers


def _listing(base: str) -> str:
    """The cloud lists its models beside the address that runs them."""
    return base.replace("https://bedrock-runtime.", "https://bedrock.", 1)


_MEANINGS: Final = {
    401: "the credentials are refused",
    403: "the credentials are not allowed to do this",
    404: "it answers, but not at this path; check the base URL",
    429: "it answers, but limits our rate",
}
