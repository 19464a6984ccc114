"""Asking a model provider or a Git host whether it is there and takes our credentials.

Called on demand by the integrations API. One GET without a body, no redirects, a deadline; nothing of the
answer but its status leaves here.

Secrets: the credential goes into one header of one request and nowhere else.
"""

from __future__ import annotations

from typing import Final

import attrs
import httpx2
import trio

TIMEOUT_S: Final = 10.0


@attrs.frozen
class Probe:
    """How one provider is asked: its usual address, a path that only lists, and the header that signs in."""

    base_url: str | None
    path: str
    header: str
    form: str = "{secret}"
    extra: tuple[tuple[str, str], ...] = ()


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
        "openai_compatible": Probe(None, "/models", "authorization", "Bearer {secret}"),
    },
    "git": {
        "github": Probe("https://api.github.com", "/user", "authorization", "Bearer {secret}"),
        "gitlab": Probe("https://gitlab.com/api/v4", "/user", "private-token"),
    },
}  # fmt: skip


@attrs.frozen
class Answer:
    """What came back: a status, or none and why."""

    status: int | None
    message: str
    took_s: float


async def ask(probe: Probe, base_url: str, secret: str | None) -> Answer:
    """Ask once. Never raises for what the other side does or fails to do."""
    headers = {"user-agent": "trace-svc", **dict(probe.extra)}
    if secret is not None:
        headers[probe.header] = probe.form.format(secret=secret)
    started_s = trio.current_time()
    status = None
    try:
        with trio.fail_after(TIMEOUT_S):
            async with (
                httpx2.AsyncClient(follow_redirects=False, timeout=TIMEOUT_S) as client,
                client.stream("GET", base_url.rstrip("/") + probe.path, headers=headers) as response,
            ):
                status = response.status_code
        message = _MEANINGS.get(status, "accepted" if status < 300 else f"answered with status {status}")
    except trio.TooSlowError:
        message = f"no answer within {TIMEOUT_S:g} s"
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        message = f"cannot be reached ({type(error).__name__})"
    return Answer(status, message, trio.current_time() - started_s)


_MEANINGS: Final = {
    401: "the credentials are refused",
    403: "the credentials are not allowed to do this",
    404: "it answers, but not at this path; check the base URL",
    429: "it answers, but limits our rate",
}
