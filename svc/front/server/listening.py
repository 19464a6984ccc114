"""Taking an address before anything else is started, so that one that is taken is named at once.

Called first in a start. What is bound anew does not listen yet: clients are told that nobody is there until
the service is ready. What was handed over listens already, and clients wait. Never accepts. Who holds a port
is read from `/proc`, where there is one; another account's processes are closed to us, and then nobody is
named.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from protocol.operator import OperatorError

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
#: The state of a socket that listens, as these tables write it.
_LISTENS: Final = "0A"


class AddressTaken(OperatorError):
    """An address cannot be had; the text names the variable, the address, the cause and a remedy."""


def bound(host: str, port: int, variable: str, handed_over: socket.socket | None = None) -> socket.socket:
    """A socket on this address, which `variable` sets: one that was handed over, else a new one.

    Raises `AddressTaken`, also of one that others reach while the setting says that they do not: sign-ups and
    what may be asked of this machine depend on that.
    """
    if handed_over is not None:
        wide_host = handed_over.getsockname()[0]
        if _is_loopback(host) and not _is_loopback(wide_host):
            handed_over.close()
            raise AddressTaken(
                f"the socket that was handed over for port {port} listens on {wide_host}, and {variable} is"
                f" {host}, which no other machine reaches. Set {variable} to the address of the socket, or"
                f" have it listen on {host}"
            )
        return handed_over
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
        raise address_refused(error, host, port, variable) from None
    return sock


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def address_refused(error: OSError, host: str, port: int, variable: str) -> AddressTaken:
    """What is said where this address cannot be listened on."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return AddressTaken(f"cannot listen on {where}: {_cause(error, port, variable)}")


def _cause(error: OSError, port: int, variable: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"{holder(port)} does already. Stop it, or set {variable} to another port"
        case errno.EACCES:
            return f"this account may not. Set {variable} to a port from 1024 on"
        case errno.EADDRNOTAVAIL:
            return f"this machine has no such address. Set {variable} to one that it has"
        case _:
            return f"{os.strerror(error.errno or 0)}. {variable} sets the address"


def holder(port: int) -> str:
    """The program that listens on this port, as far as this account may see."""
    process = next(holding_processes(port), None)
    # It may end meanwhile.
    with suppress(OSError):
        if process is not None:
            return f"process {process.name} ({(process / 'comm').read_text().strip()})"
    return "another program"


def holding_processes(port: int) -> Iterator[Path]:
    """The folders below /proc of the processes that listen on this port, as far as this account may see."""
    inodes = {inode for table in _TABLES for inode in _listening(Path(table), port)}
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        # It may end meanwhile, and another account's is closed to us.
        with suppress(OSError):
            if any(os.readlink(file) in sockets for file in (process / "fd").iterdir()):
                yield process


def _listening(table: Path, port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on this port, from a table of `/proc/net`."""
    with suppress(OSError):
        for line in table.read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == _LISTENS and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]
