"""Taking an address before anything else is started, so that one that is taken is named at once.

Called first in a start. Bound and not listening yet: clients are told that nobody is there until the service
is ready. Never accepts.
"""

from __future__ import annotations

import errno
import os
import socket

from protocol.operator import OperatorError


class AddressTaken(OperatorError):
    """An address cannot be had; the text names the variable, the address, the cause and a remedy."""


def bound(host: str, port: int, variable: str) -> socket.socket:
    """A socket on this address, which `variable` sets. Raises `AddressTaken`."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise AddressTaken(f"{variable}: {host!r} is not the name of an address here: {error}") from None
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise AddressTaken(f"cannot listen on {where}: {_cause(error, variable)}") from None
    return sock


def free(host: str, port: int, variable: str) -> None:
    """Raise `AddressTaken` unless this address could be had right now."""
    bound(host, port, variable).close()


def _cause(error: OSError, variable: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"another program does already; stop it, or set {variable} to another port"
        case errno.EACCES:
            return f"this account may not; set {variable} to a port from 1024 on"
        case errno.EADDRNOTAVAIL:
            return f"this machine has no such address; set {variable} to one that it has"
        case _:
            return f"{os.strerror(error.errno or 0)}; {variable} sets the address"
