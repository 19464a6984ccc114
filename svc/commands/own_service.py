"""The service that runs beside a command, as the settings say where: its address and a client for it.

Never used for another host than this machine, but for an address that the operator types. Whether
a service at that address has another data folder is seen on this machine alone.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from svc.commands.neighbour import served_folder
from svc.config.table import Settings

if TYPE_CHECKING:
    import httpx2


def own_url(settings: Settings) -> str:
    """Where the service of these settings is reached from this machine."""
    host, port = settings.https_bind if settings.does_tls else settings.http_bind
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    scheme = "https" if settings.does_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def other_folder(settings: Settings) -> str | None:
    """A sentence where a service at the address of these settings runs on another data folder; else None."""
    port = urlsplit(own_url(settings)).port
    folder = served_folder(port) if port else None
    if folder is None or folder.resolve() == settings.data_dir.resolve():
        return None
    return (
        f"the service at {own_url(settings)} uses another data folder, {folder}; here SVC_DATA_DIR"
        f" is {settings.data_dir}"
    )


def asking(url: str, settings: Settings, *, timeout_s: float) -> httpx2.AsyncClient:
    """A client for this address. That of our own door is in no certificate, so there none is asked for."""
    # Here, not above: it is a third of the time that `serve --help` takes.
    import httpx2

    if url == own_url(settings) or _is_loopback(urlsplit(url).hostname or ""):
        return httpx2.AsyncClient(base_url=url, timeout=timeout_s, verify=False)
    return httpx2.AsyncClient(base_url=url, timeout=timeout_s)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
