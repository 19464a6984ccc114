"""Where things are by the settings: our own addresses as others reach us, the runner, networks near by.

Commands and the wiring ask. Pure: resolves no name and connects to nothing.
"""

from __future__ import annotations

import socket
from typing import Final
from urllib.parse import urlsplit

from protocol.rest.accounts import SSO_CALLBACK
from svc.config.table import Settings
from svc.outside.addresses import LOCAL_NETWORKS, Network

#: Where the runner of a compose stack is.
_COMPOSED_RUNNER: Final = "http://sandbox-runner:8080"


def origin_of(url: str) -> str:
    """Its scheme and host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def public_origin(settings: Settings, port: int) -> str:
    """How people reach the pages, for links in messages."""
    if settings.frontend_url is not None:
        return origin_of(settings.frontend_url) + settings.base_path
    if settings.site_domain is not None:
        return f"https://{settings.site_domain}{settings.base_path}"
    return f"http://localhost:{port}{settings.base_path}"


def landing(settings: Settings) -> str:
    """Where people land after they have signed in elsewhere: the frontend that is set, else nothing."""
    return "" if settings.frontend_url is None else origin_of(settings.frontend_url) + settings.base_path


def sso_redirect_uri(settings: Settings) -> str:
    """Where the identity provider sends browsers back to: as set, else on our public origin."""
    if settings.sso_redirect_uri is not None:
        return str(settings.sso_redirect_uri)
    if settings.site_domain is not None:
        return f"https://{settings.site_domain}{settings.base_path}{SSO_CALLBACK}"
    return public_origin(settings, settings.http_bind[1]) + SSO_CALLBACK


def runner_url(settings: Settings) -> str | None:
    """Where the sandbox runner is; None where it is a child of this process, as of a local start."""
    if settings.launcher_url is None and settings.local:
        return None
    return settings.launcher_url or _COMPOSED_RUNNER


def mcp_url(settings: Settings, port: int) -> str:
    """Where the runner reaches this service."""
    if settings.mcp_url is not None:
        return settings.mcp_url
    if settings.does_tls:
        return f"https://{settings.site_domain}/mcp"
    host = settings.http_bind[0]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - it is compared with
        host = "127.0.0.1" if runner_url(settings) is None else socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def alert_networks(settings: Settings) -> tuple[Network, ...]:
    """The networks beside the public one that alerts may be sent to.

    A receiver of one's own beside a start that only this machine can reach is common.
    """
    return _near(settings, settings.alert_networks)


def integration_networks(settings: Settings) -> tuple[Network, ...]:
    """The networks beside the public one that integrations may reach.

    Local models are common, so a start that only this machine can reach lets everything near be reached.
    """
    return _near(settings, settings.integration_networks)


def _near(settings: Settings, networks: tuple[Network, ...] | None) -> tuple[Network, ...]:
    if networks is not None:
        return networks
    return LOCAL_NETWORKS if settings.local else ()
