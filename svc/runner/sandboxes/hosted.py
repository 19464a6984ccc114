"""Sandboxes as microVMs of a host elsewhere: no network, an end of their own, never more than the bound.

Owns `HostedBackend`. Each run that has a script gets a machine; the host ends it at its deadline whatever
becomes of this runner. What a runner that died left behind is listed and ended at the next look. A script
whose time is over goes on in its machine, so the next one gets another.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from protocol.running import CAPACITY
from svc.outside.microvms import HostAway, Machine, MachineDied, MicroVmHost
from svc.runner.sandbox import OUT_BYTES, WORK, SandboxAway, SandboxDied, ScriptEnd
from svc.runner.sandboxes import leftovers

log = logging.getLogger(__name__)

#: Machines that may be there at once: those of two runs, and as many that a runner which died left.
MACHINES: Final = 2 * CAPACITY
USER: Final = "user"

#: What is noted of a machine besides: whose it is.
_OURS: Final = {"trace-svc": "sandbox"}


@attrs.define(eq=False)
class HostedBackend:
    """Implements `SandboxBackend` over a host of microVMs; None while its key is not set."""

    host: MicroVmHost | None
    template: str
    name: str = "hosted"
    scripts: bool = False
    fault: str = ""
    _told: bool = False
    _turn: trio.Lock = attrs.field(factory=trio.Lock)

    async def look(self) -> None:
        """Whether the host answers, and what of ours is overdue."""
        try:
            if self.host is None:
                raise HostAway("SANDBOX_HOSTED_KEY is blank")
            for machine in await self.host.listed(_OURS):
                if leftovers.overdue(machine.notes):
                    await self.host.end(machine.id)
        except HostAway as away:
            self._away(away)
            return
        if not self.scripts:
            log.info("scripts run in microVMs of %s, without a network", self.host.url)
        self.scripts, self.fault, self._told = True, "", False

    def _away(self, away: HostAway) -> None:
        self.scripts, self.fault = False, f"no microVM can be had: {away}"
        if not self._told:
            log.warning("scripts are not run: %s", away)
        self._told = True

    @asynccontextmanager
    async def opened(self, run: str, seconds: float) -> AsyncIterator[_MicroVm]:
        """A machine for a run. Raises `SandboxAway`."""
        try:
            sandbox = await self._begun(run, seconds)
        except HostAway as away:
            self._away(away)
            raise SandboxAway(str(away)) from None
        try:
            yield sandbox
        finally:
            with trio.move_on_after(leftovers.CLOSE_S, shield=True):
                await self._end(sandbox.machine.id)

    async def _begun(self, run: str, seconds: float) -> _MicroVm:
        host = self.host
        if host is None:
            raise HostAway("SANDBOX_HOSTED_KEY is blank")
        notes = _OURS | leftovers.noted(run, seconds)
        # One at a time: what two see free is taken once.
        async with self._turn:
            machines = await host.listed(_OURS)
            if len(machines) >= MACHINES:
                raise HostAway(f"{len(machines)} microVMs are there, and {MACHINES} may be")
            machine: Machine | None = None
            try:
                machine = await host.begin(
                    self.template, round(max(seconds, 1.0) + leftovers.OVERTIME_S), notes
                )
                sandbox = _MicroVm(host, machine)
                await sandbox.prepare()
            except BaseException as error:
                with trio.move_on_after(leftovers.CLOSE_S, shield=True):
                    await self._undo(host, machine, notes)
                if isinstance(error, MachineDied):
                    raise HostAway("a microVM died at its birth") from None
                raise
        return sandbox

    async def _undo(self, host: MicroVmHost, vm: Machine | None, notes: dict[str, str]) -> None:
        """End what was half made, also what was made and never told."""
        if vm is not None:
            await self._end(vm.id)
            return
        try:
            for machine in await host.listed(_OURS):
                if machine.notes.get(leftovers.RUN) == notes[leftovers.RUN]:
                    await self._end(machine.id)
        except HostAway as away:
            log.warning("a sandbox may be left over, will retry: %s", away)

    async def _end(self, id_: str) -> None:
        assert self.host is not None
        try:
            await self.host.end(id_)
        except HostAway as away:
            log.warning("could not remove a sandbox, will retry: %s", away)


@attrs.define(eq=False)
class _MicroVm:
    """Implements `Sandbox` in one machine."""

    host: MicroVmHost
    machine: Machine
    _scripts: int = 0

    async def prepare(self) -> None:
        """The folder of the run's files. Raises `HostAway` and `MachineDied`."""
        words = ("/bin/sh", "-c", f"mkdir -p {WORK}/data && chown -R {USER} {WORK}")
        try:
            output = await self.host.run(
                self.machine, words, "/", "root", OUT_BYTES, timeout_s=leftovers.CLOSE_S
            )
        except trio.TooSlowError:
            raise MachineDied from None
        if output.exit_code != 0:
            raise MachineDied

    async def put(self, path: str, data: bytes) -> None:
        """A file below `WORK`."""
        try:
            await self.host.put(self.machine, path, data, USER)
        except HostAway as away:
            raise SandboxAway(str(away)) from None
        except MachineDied:
            raise SandboxDied from None

    async def run(self, code: str, seconds: float) -> ScriptEnd:
        """A script, to its end or to the end of its time."""
        self._scripts += 1
        name = f"{WORK}/.script-{self._scripts}.py"
        await self.put(name, code.encode())
        program = ("python3", name)
        try:
            output = await self.host.run(self.machine, program, WORK, USER, OUT_BYTES, timeout_s=seconds)
        except trio.TooSlowError:
            return ScriptEnd.stopped(seconds)
        except HostAway as away:
            raise SandboxAway(str(away)) from None
        except MachineDied:
            raise SandboxDied from None
        return ScriptEnd.said(output.exit_code, output.out, cut=output.cut)
