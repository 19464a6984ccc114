"""Sandboxes as sibling containers: no network, no capability, a read-only root, one volume of their own.

Owns `ContainerBackend`. A container sleeps until its deadline and runs scripts by `exec`; leaving a
script's stream stops nothing, so after a time-out there is another container. What a runner that died left
behind is cleared away at the next look.
"""

from __future__ import annotations

import io
import logging
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import msgspec
import trio

from svc.outside.engine import Engine, EngineAnswer, EngineAway, ExecRefused, pull_query
from svc.runner.sandbox import FILES_BYTES, OUT_BYTES, WORK, SandboxAway, SandboxDied, ScriptEnd
from svc.runner.sandboxes import leftovers

log = logging.getLogger(__name__)

USER: Final = 65532
MEMORY_BYTES: Final = 512 * 1024 * 1024
PIDS: Final = 128
PULL_S: Final = 600.0
PING_S: Final = 5.0


@attrs.define(eq=False)
class ContainerBackend:
    """Implements `SandboxBackend` over an engine."""

    engine: Engine
    image: str
    volume: str
    name: str = "container"
    scripts: bool = False
    fault: str = ""
    _opened: int = 0
    _cpus: bool = True

    async def look(self) -> None:
        """Whether the engine answers, what it can hold, and what of ours is overdue."""
        had_scripts = self.scripts
        try:
            info = (await self.engine.ask("GET", "/info")).read()
            self._cpus = bool(info.get("CPUCfsQuota"))
            await self._clear()
            self.scripts, self.fault = True, ""
        except (EngineAway, KeyError, ValueError, AttributeError) as away:
            self.scripts, self.fault = False, f"the container engine does not answer: {away}"
            if had_scripts:
                log.warning("scripts are not run: %s", away)
            return
        if not had_scripts:
            log.info(
                "scripts run in containers of %s; the engine limits%s memory and processes",
                self.image,
                " processor time," if self._cpus else " no processor time, but",
            )

    @asynccontextmanager
    async def opened(self, run: str, seconds: float) -> AsyncIterator[_Container]:
        """A container for a run. Raises `SandboxAway`."""
        self._opened += 1
        # One of a run may still be on its way out.
        name = f"{self.volume}-{run}-{self._opened}"
        labels = leftovers.noted(run, seconds)
        try:
            try:
                await self._made(name, labels, round(seconds + leftovers.OVERTIME_S))
            except EngineAway as away:
                # Until the next look nobody else need try.
                self.scripts, self.fault = False, f"no container can be made: {away}"
                log.warning("scripts are not run: %s", away)
                raise SandboxAway(str(away)) from None
            yield _Container(self.engine, name)
        finally:
            # Also what was half made.
            with trio.move_on_after(leftovers.CLOSE_S, shield=True):
                await self._remove(name)

    async def _made(self, name: str, labels: dict[str, str], seconds: int) -> None:
        # Of the run alone, and bounded: a part of a volume that runs share has no size of its own.
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={FILES_BYTES},uid={USER},gid={USER}"}
        volume = {"Name": name, "Driver": "local", "DriverOpts": options, "Labels": labels}
        _fine(await self.engine.ask("POST", "/volumes/create", volume), 201)
        body, called = self._body(name, labels, seconds), {"name": name}
        answer = await self.engine.ask("POST", "/containers/create", body, query=called)
        if answer.status == 404:
            await self._pull()
            answer = await self.engine.ask("POST", "/containers/create", body, query=called)
        _fine(answer, 201)
        _fine(await self.engine.ask("POST", f"/containers/{name}/start"), 204)

    def _body(self, name: str, labels: dict[str, str], seconds: int) -> dict[str, Any]:
        mount: dict[str, Any] = {"Type": "volume", "Source": name, "Target": WORK}
        host: dict[str, Any] = {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": PIDS,
            "Memory": MEMORY_BYTES,
            "MemorySwap": MEMORY_BYTES,
            "IpcMode": "none",
            "LogConfig": {"Type": "none"},
            "AutoRemove": True,
            "Ulimits": [
                {"Name": "nofile", "Soft": 256, "Hard": 256},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            "Tmpfs": {"/tmp": f"size=16m,uid={USER},gid={USER}"},  # noqa: S108 - the container's own
            "Mounts": [mount],
        }
        if self._cpus:
            host["NanoCpus"] = 1_000_000_000
        return {
            "Image": self.image,
            "Entrypoint": [],
            "Cmd": ["sleep", str(seconds)],
            "User": f"{USER}:{USER}",
            "WorkingDir": WORK,
            "Env": ["HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"],
            "Labels": labels,
            "HostConfig": host,
        }

    async def _pull(self) -> None:
        query = pull_query(self.image)
        answer = await self.engine.ask("POST", "/images/create", query=query, timeout_s=PULL_S)
        if answer.status != 200:
            raise EngineAway(f"the image {self.image} cannot be pulled ({answer.status})")

    async def _remove(self, name: str) -> None:
        try:
            await self.engine.ask("DELETE", f"/containers/{name}", query={"force": "1", "v": "1"})
            # The engine lets go of a volume shortly after its container.
            while True:
                if (await self.engine.ask("DELETE", f"/volumes/{name}")).status != 409:
                    break
                await trio.sleep(0.1)
        except EngineAway as away:
            log.warning("could not remove a sandbox, will retry: %s", away)

    async def _clear(self) -> None:
        """Remove what is overdue: its runner died."""
        labelled = {"filters": msgspec.json.encode({"label": [leftovers.DEADLINE]}).decode()}
        containers = (await self.engine.ask("GET", "/containers/json", query={**labelled, "all": "1"})).read()
        for container in containers:
            if leftovers.overdue(container.get("Labels")):
                await self.engine.ask(
                    "DELETE", f"/containers/{container['Id']}", query={"force": "1", "v": "1"}
                )
        volumes = (await self.engine.ask("GET", "/volumes", query=labelled)).read().get("Volumes")
        for volume in volumes or ():
            if leftovers.overdue(volume.get("Labels")):
                await self.engine.ask("DELETE", f"/volumes/{volume['Name']}")


def _fine(answer: EngineAnswer, status: int) -> EngineAnswer:
    if answer.status != status:
        raise EngineAway(f"the container engine answers {answer.status}")
    return answer


@attrs.define(eq=False)
class _Container:
    """Implements `Sandbox` in one container."""

    engine: Engine
    id: str
    _scripts: int = 0

    async def put(self, path: str, data: bytes) -> None:
        """A file below `WORK`."""
        where = path.removeprefix(f"{WORK}/")
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for parent in [where.rpartition("/")[0]] if "/" in where else []:
                folder = tarfile.TarInfo(parent)
                folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o755, USER, USER
                tar.addfile(folder)
            file = tarfile.TarInfo(where)
            file.size, file.mode, file.uid, file.gid = len(data), 0o644, USER, USER
            tar.addfile(file, io.BytesIO(data))
        answer = await self._ask(
            "PUT", f"/containers/{self.id}/archive", query={"path": WORK}, raw=archive.getvalue()
        )
        if answer.status != 200:
            raise SandboxDied

    async def run(self, code: str, seconds: float) -> ScriptEnd:
        """A script, to its end or to the end of its time."""
        self._scripts += 1
        name = f"{WORK}/.script-{self._scripts}.py"
        await self.put(name, code.encode())
        exec_ = {"AttachStdout": True, "AttachStderr": True, "Cmd": ["python3", name], "WorkingDir": WORK}
        answer = await self._ask("POST", f"/containers/{self.id}/exec", exec_)
        if answer.status != 201:
            raise SandboxDied(f"the engine answers {answer.status}")
        started = answer.read()["Id"]
        try:
            out, cut = await self.engine.output(
                f"/exec/{started}/start", {"Detach": False, "Tty": False}, OUT_BYTES, timeout_s=seconds
            )
        except trio.TooSlowError:
            return ScriptEnd.stopped(seconds)
        except ExecRefused as refused:
            raise SandboxDied(str(refused), unstarted=True) from None
        except EngineAway as away:
            raise await self._lost(away) from None
        inspection = await self._ask("GET", f"/exec/{started}/json")
        if inspection.status != 200:
            raise SandboxDied
        fields = inspection.read()
        # Some engines forget the process once it has ended, so the stream has to say so, too.
        if fields.get("Pid") == 0 and fields.get("ExitCode") != 0 and out.startswith(b"OCI runtime"):
            # Nothing has run. Such a container stays as it is: what an earlier script left running may have
            # used it up.
            missing = b"executable file not found" in out
            why = "its image has no python3" if missing else "no process can be begun in it"
            raise SandboxDied(why, unstarted=True)
        code_ = fields.get("ExitCode")
        return ScriptEnd.said(code_ if isinstance(code_, int) else -1, out, cut=cut)

    async def _ask(self, method: str, path: str, body: Any = None, **options: Any) -> EngineAnswer:
        try:
            return await self.engine.ask(method, path, body, **options)
        except EngineAway as away:
            raise await self._lost(away) from None

    async def _lost(self, away: EngineAway) -> SandboxAway | SandboxDied:
        """Whose fault it is that no answer came: of this container alone where the engine answers others."""
        try:
            answer = await self.engine.ask("GET", "/_ping", timeout_s=PING_S)
        except EngineAway:
            return SandboxAway(str(away))
        return SandboxDied(str(away), unstarted=True) if answer.status == 200 else SandboxAway(str(away))
