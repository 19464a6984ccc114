"""The servers of one address: which of them to connect to, and when to leave one that hangs.

Owns the making of connections, the order in which several servers are tried, and who is connected to which.
Each `Database` has one, from which its connections come. Asyncio-flavoured. Never ends a connection to a
server that still accepts sessions.

Why not asyncpg's own list of hosts: it gives all of them one deadline, which a frozen server uses up, and an
error of one server hides those behind it. And a server that is frozen or cut off closes no connection: what
waits for it would wait for as long as a unit of work may take.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from protocol.database_address import Address, Host, Target, shown
from svc.store.postgres.sessions import Connection, Session

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 10.0
#: What each of several servers gets.
SERVER_TIMEOUT_S: Final = 3.0

#: The setting by which a server notices, while a statement runs, that a client is gone. A server whose system
#: cannot tell it, such as Windows, refuses every session that asks for it.
CLIENT_CHECK: Final = "client_connection_check_interval"

#: The server's machine is asked after ten seconds of silence, and dead after three such questions.
_PROBES: Final[Mapping[str, int]] = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}

#: How often the connections in use are checked, and how long one may wait before its server is tried with
#: another session. Most units of work take milliseconds; a long one costs a session every few seconds.
LOOK_S: Final = 1.0
SILENT_S: Final = 2.0


class NoServer(OSError):
    """None of several servers is the one that is wanted. The text says what each of them is."""


class Servers:
    """The servers of `address`; `settings` are those of each session."""

    def __init__(self, address: Address, settings: Mapping[str, str]) -> None:
        self.address, self._settings = address, dict(settings)
        self.several = len(address.hosts) > 1
        #: The one that accepted a session last is the first, those that did not are the last.
        self._order = list(address.hosts)
        self._at: dict[Connection, Host] = {}
        #: How often the server was another one than before.
        self.changes = 0
        self._latest: Host | None = None
        #: When a server accepted a session that only wanted to know.
        self._answered_s: dict[Host, float] = {}

    async def connect(self) -> Connection:
        """A session with the server that is wanted. Raises what asyncpg raises, for several `NoServer`."""
        if not self.several:
            return await self._session(self.address.hosts[0], self.address.target, CONNECT_TIMEOUT_S)
        problems: dict[Host, str] = {}
        busy: Exception | None = None
        for target in self._targets():
            for host in list(self._order):
                try:
                    connection = await self._at_host(host, target)
                except asyncpg.TooManyConnectionsError as error:
                    busy = error
                except Exception as error:
                    problems[host] = _problem(error)
                else:
                    self._prefer(host)
                    self.changes += self._latest not in (None, host)
                    self._latest = host
                    return connection
        if busy is not None:
            # It is up, which the other servers are not to hide.
            raise busy
        texts = [f"{shown((host,))} {problems[host]}" for host in self.address.hosts if host in problems]
        raise NoServer("; ".join(texts))

    def _targets(self) -> Iterator[Target | None]:
        if self.address.target == "prefer-standby":
            yield "standby"
            yield "any"
        else:
            yield self.address.target

    async def _at_host(self, host: Host, target: Target | None) -> Connection:
        try:
            return await self._session(host, target, SERVER_TIMEOUT_S)
        except BaseException:
            # Also of who was cancelled: a frozen server would cost everybody with little time all of it.
            self.put_last(host)
            raise

    async def _session(self, host: Host, target: Target | None, timeout_s: float) -> Connection:
        try:
            connection = await self._begin(host, target, timeout_s)
        except (asyncpg.InvalidParameterValueError, asyncpg.UndefinedObjectError):
            if self._settings.pop(CLIENT_CHECK, None) is None:
                raise
            connection = await self._begin(host, target, timeout_s)
        if not Path(host[0]).is_absolute():
            _keep_alive(connection)
        if self.several:
            self._at[connection] = host
            connection.add_termination_listener(self._forget)
        return connection

    async def _begin(self, host: Host, target: Target | None, timeout_s: float) -> Connection:
        name, port = host
        connection: Connection = await asyncpg.connect(
            host=name,
            port=port,
            user=self.address.user,
            password=self.address.password,
            database=self.address.database,
            # asyncpg reads libpq's words itself; a Unix socket never speaks TLS.
            ssl=_tls(name, self.address.tls),
            timeout=timeout_s,
            connection_class=Session,
            server_settings=self._settings,
            target_session_attrs=None if target is None else SessionAttribute(target),
        )
        return connection

    def _forget(self, connection: Any) -> None:
        self._at.pop(connection, None)

    def _prefer(self, host: Host) -> None:
        self._order.remove(host)
        self._order.insert(0, host)

    def put_last(self, host: Host) -> None:
        """Try the others first from now on."""
        self._order.remove(host)
        self._order.append(host)

    def unfit(self, connection: Connection) -> None:
        """What a connection leads to turned out to be the wrong server."""
        if (host := self._at.get(connection)) is not None:
            self.put_last(host)

    async def watch(self, working: Mapping[Connection, float]) -> None:
        """Leave servers that hang, until cancelled. `working` says since when each connection is in use."""
        hanging: set[Host] = set()
        while True:
            await asyncio.sleep(LOOK_S)
            silent = self._silent(working)
            # A server that did not answer is not tried again: time is for finding another one. If it comes
            # back, its answers do too.
            hanging = {host for host in silent if host in hanging or not await self._accepts(host)}
            for host in hanging:
                await self._leave(host)

    def _silent(self, working: Mapping[Connection, float]) -> set[Host]:
        now_s = asyncio.get_running_loop().time()
        return {
            self._at[connection]
            for connection, since_s in working.items()
            if connection in self._at
            and now_s - max(since_s, self._answered_s.get(self._at[connection], 0.0)) > SILENT_S
        }

    async def _accepts(self, host: Host) -> bool:
        """Whether it is there, and still the one that is wanted."""
        try:
            connection = await self._session(host, self.address.target, SERVER_TIMEOUT_S)
        except asyncpg.TooManyConnectionsError:
            pass
        except Exception:
            return False
        else:
            connection.terminate()
        self._answered_s[host] = asyncio.get_running_loop().time()
        return True

    async def _leave(self, host: Host) -> None:
        """End the connections to a server that hangs, once another one is in its place; it may come back."""
        for successor in self._order:
            if successor != host and await self._accepts(successor):
                break
        else:
            return
        self._prefer(successor)
        log.warning("the database at %s hangs; changing to %s", shown((host,)), shown((successor,)))
        for connection, server in list(self._at.items()):
            if server == host:
                connection.terminate()


def _keep_alive(connection: Connection) -> None:
    """Let the kernel end a connection whose network is gone, best while nobody uses it."""
    # asyncpg has no public way to its socket.
    link = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        # Not every system has a name for each of them.
        if (option := getattr(socket, name, None)) is not None:
            link.setsockopt(socket.IPPROTO_TCP, option, value)


def _problem(error: Exception) -> str:
    """What is wrong with one of several servers, as the log may say it."""
    if isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched):
        return "is not the one that is wanted"
    if isinstance(error, TimeoutError):
        return "does not answer"
    if isinstance(error, OSError):
        return "cannot be reached"
    return type(error).__name__


def _tls(host: str, tls: str | None) -> Any:
    return False if Path(host).is_absolute() else tls
