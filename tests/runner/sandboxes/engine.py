"""A container engine for tests: a `dockerd` of our own, and an image made of this very interpreter."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import trio

from svc.outside.engine import Engine
from tests.conftest import missing

IMAGE = "trace-svc-tests:latest"
#: Left out of the image: what no script of a test imports.
_LEFT_OUT = ("test", "__pycache__", "site-packages", "idlelib", "tkinter", "ensurepip", "lib2to3", "config-")


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine with the image. Skips aloud where there is none, or where the kernel forbids one."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        missing("dockerd")
    folder = Path(tempfile.mkdtemp(prefix="trace-svc-dockerd-"))
    log = folder / "log"
    with log.open("w") as sink:
        process = subprocess.Popen(
            [
                *("dockerd", "--bridge=none", "--iptables=false", "--data-root", f"{folder}/data"),
                *("--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"),
                *("--host", f"unix://{folder}/docker.sock"),
            ],
            stdout=sink,
            stderr=sink,
        )
    try:
        deadline = time.monotonic() + 60
        while "API listen on" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"no dockerd can run here: {log.read_text().splitlines()[-1][:300]}")
            time.sleep(0.1)
        found = Engine(f"{folder}/docker.sock")
        trio.run(_import, found)
        yield found
    finally:
        process.terminate()
        process.wait(30)
        _clear(folder)


@asynccontextmanager
async def breaking(real: Engine, path: str, times: int, reply: bytes) -> AsyncIterator[Engine]:
    """The engine, but that the first calls of a path get something else than its answer."""
    folder = Path(tempfile.mkdtemp(prefix="trace-svc-proxy-"))
    left = [times]

    async def forward(source: trio.SocketStream, target: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await target.send_all(data)
            await target.send_eof()

    async def handle(client: trio.SocketStream) -> None:
        first = await client.receive_some(65536)
        if left[0] and path.encode() in first.partition(b"\r\n")[0]:
            left[0] -= 1
            await client.send_all(reply)
            return
        async with await trio.open_unix_socket(real.socket) as server, trio.open_nursery() as nursery:
            await server.send_all(first)
            nursery.start_soon(forward, client, server)
            await forward(server, client)
            nursery.cancel_scope.cancel()

    socket = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await socket.bind(str(folder / "docker.sock"))
    socket.listen()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, handle, [trio.SocketListener(socket)])
            yield Engine(str(folder / "docker.sock"))
            nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(folder)


def kill_engine(engine: Engine) -> None:
    """As the machine would when its memory is over: the engine dies, and what it began lives on."""
    os.kill(int(Path(engine.socket).with_name("pid").read_text()), signal.SIGKILL)


def _clear(folder: Path) -> None:
    """Remove what a killed engine leaves: its processes, its mounts, its files."""
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder).encode() in arguments.read_bytes():
                os.kill(int(arguments.parent.name), signal.SIGKILL)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed(mounts):
        if mount.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", mount], check=False, timeout=30)
    shutil.rmtree(folder, ignore_errors=True)


async def _import(engine: Engine) -> None:
    query = {"fromSrc": "-", "repo": IMAGE.partition(":")[0], "tag": "latest"}
    answer = await engine.ask("POST", "/images/create", query=query, raw=_image(), timeout_s=120)
    assert answer.status == 200, answer.body[-300:]


def _image() -> bytes:
    """The interpreter with its library, what they link to, and `sleep`."""
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    library = Path(sysconfig.get_path("stdlib"))
    sleep = Path(shutil.which("sleep") or "/bin/sleep")
    binaries = [python, sleep, *(library / "lib-dynload").glob("*.so")]
    linked: set[str] = set()
    for binary in binaries:
        told = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
        linked |= {word for word in told.split() if word.startswith("/")}
    image = io.BytesIO()
    with tarfile.open(fileobj=image, mode="w") as tar:
        for path in sorted(linked | {str(python), str(sleep)}):
            tar.add(os.path.realpath(path), arcname=path)
        tar.add(
            library,
            filter=lambda info: None if any(f"/{part}" in info.name for part in _LEFT_OUT) else info,
        )
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, str(python)
        tar.addfile(link)
        for name in ("work", "tmp", "proc", "sys", "dev", "etc"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
    return image.getvalue()
