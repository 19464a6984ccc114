"""A machine whose network is gone: its server and its clients learn it, and what it held is free again."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from protocol.database_address import Address
from svc.store.postgres.database import Database
from tests.conftest import missing
from tests.debian_postgres import DebianPostgres

_OURS, _THEIRS, _NETWORK = "10.203.77.1", "10.203.77.2", "10.203.77.0/30"

#: Holds a table locked, in a transaction that never ends, and says when it does.
_HOLDER = """
import asyncio, sys, trio
from protocol.database_address import Address
from svc.runtime.asyncio_loop import asyncio_loop
from svc.store.postgres.database import Database

async def work(connection):
    await connection.execute("lock table wanted in access exclusive mode")
    print("held", flush=True)
    await asyncio.sleep(600)

async def main():
    address = Address(sys.argv[1], int(sys.argv[2]), "owner", "secret of the test", "postgres")
    async with asyncio_loop(()), Database(address).opened() as database:
        await database.run(work, timeout_s=600)

trio.run(main)
"""


@attrs.frozen
class Machine:
    """A network namespace: another machine, as far as a network goes."""

    name: str

    def command(self, *words: str) -> list[str]:
        """A command that runs there."""
        return ["ip", "netns", "exec", self.name, *words]

    def fall_silent(self) -> None:
        """Answer nothing any more, and tell nobody."""
        # Not the cable: what our own end cannot send is no unanswered question to the kernel.
        _ip("-n", self.name, "route", "add", "blackhole", f"{_OURS}/32")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=30, capture_output=True)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Another machine behind a cable of its own."""
    if shutil.which("ip") is None:
        missing("ip (iproute2)")
    name = f"svc{os.getpid() % 100_000}"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this kernel makes no network namespace for us: {error.stderr.decode().strip()}")
    ours, theirs = f"{name}-o", f"{name}-t"
    try:
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        _ip("addr", "add", f"{_OURS}/30", "dev", ours)
        _ip("link", "set", ours, "up")
        _ip("-n", name, "addr", "add", f"{_THEIRS}/30", "dev", theirs)
        _ip("-n", name, "link", "set", theirs, "up")
        yield Machine(name)
    finally:
        # First the cable: whoever is left there keeps the rest alive.
        _ip("link", "del", ours)
        _ip("netns", "del", name)


@pytest.mark.release
async def test_what_a_dead_machine_held_is_free_again_after_two_minutes(
    asyncio_loop: None, machine: Machine, open_folder: Path
) -> None:
    server = DebianPostgres(open_folder / "pg", network=_NETWORK)
    here = Address("127.0.0.1", server.port, "owner", "secret of the test", "postgres")
    try:
        async with Database(here).opened() as database:
            await database.run(lambda connection: connection.execute("create table wanted ()"))
            words = machine.command(sys.executable, "-c", _HOLDER, _OURS, str(server.port))
            root = Path(__file__).parents[3]
            with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=root) as holder:  # noqa: ASYNC220
                try:
                    assert holder.stdout is not None
                    assert select.select([holder.stdout], [], [], 60)[0]
                    assert holder.stdout.readline() == b"held\n"
                    machine.fall_silent()
                    # Two minutes in which the server waits for its answer to arrive, and as much again.
                    await database.run(
                        lambda connection: connection.execute("lock table wanted in access exclusive mode"),
                        timeout_s=240,
                    )
                finally:
                    holder.kill()
    finally:
        server.stop()


async def test_both_ends_of_a_session_ask_whether_the_other_is_there(
    asyncio_loop: None, postgres: DebianPostgres
) -> None:
    address = Address("127.0.0.1", postgres.port, "owner", "secret of the test", "postgres")
    async with Database(address).opened() as database:
        shown = await database.run(
            lambda connection: connection.fetchrow(
                "select current_setting('tcp_keepalives_idle') as idle,"
                " current_setting('tcp_keepalives_interval') as interval,"
                " current_setting('tcp_keepalives_count') as count,"
                " current_setting('tcp_user_timeout') as most"
            )
        )
        assert shown is not None
        assert tuple(shown) == ("20", "10", "4", "120000")

        async def options(connection: object) -> tuple[int, ...]:
            link = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            return (
                link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                *(link.getsockopt(socket.IPPROTO_TCP, name) for name in names),
            )

        assert await database.run(options) == (1, 10, 3, 3)
