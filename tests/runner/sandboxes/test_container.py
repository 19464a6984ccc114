"""Containers as sandboxes, in a real engine: what a script cannot reach, use up or leave behind."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import trio

from protocol.running import RunStands
from svc.outside.engine import Engine
from svc.runner.hands import WORK, Hands, HandsAway, HandsDied, ScriptEnd
from svc.runner.sandboxes import container, leftovers
from svc.runner.sandboxes.container import ContainerBackend
from tests.runner.running import Place, answer, ended, followed, kinds, request, runner
from tests.runner.sandboxes.engine import IMAGE, engine, kill_engine
from tests.runner.standin_model import Asked, Reply, calls, standin
from tests.service import Service, until


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    with engine() as found:
        yield found


@pytest.fixture
async def backend(docker: Engine) -> ContainerBackend:
    made = ContainerBackend(docker, IMAGE, "work")
    await made.look()
    assert made.scripts
    return made


async def left(docker: Engine) -> tuple[int, int]:
    """Containers and volumes."""
    containers = (await docker.ask("GET", "/containers/json", query={"all": "1"})).read()
    return len(containers), len((await docker.ask("GET", "/volumes")).read()["Volumes"] or ())


async def ran(hands: Hands, code: str, seconds: float = 30.0) -> ScriptEnd:
    return await hands.run(code, seconds)


PROBES = """
import json, os, socket
def tried(act):
    try:
        act()
        return "did"
    except OSError as error:
        return type(error).__name__
print(json.dumps({
    "uid": os.getuid(),
    "network": tried(lambda: socket.create_connection(("1.1.1.1", 53), 2)),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "root": tried(lambda: open("/etc/x", "w")),
    "work": tried(lambda: open("x", "w")),
    "setuid": tried(lambda: os.setuid(0)),
    "mount": tried(lambda: os.chroot("/tmp")),
    "environment": sorted(os.environ),
    "claim": open("claim.json").read(),
    "data": open("data/q1.json").read(),
    "caps": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")][0],
    "new": [line.split()[1] for line in open("/proc/self/status") if line.startswith("NoNewPrivs")][0],
}))
"""


async def test_a_script_reads_its_files_and_reaches_nothing_else(
    backend: ContainerBackend, docker: Engine
) -> None:
    async with backend.opened("run-a", 60) as hands:
        await hands.put(f"{WORK}/claim.json", b"the claim")
        await hands.put(f"{WORK}/data/q1.json", b"a result")
        end = await ran(hands, PROBES)
        assert end.exit_code == 0, end.out
        seen = json.loads(end.out)
        failed = await ran(hands, "raise SystemExit(3)")
    assert seen["uid"] == 65532
    assert seen["network"] != "did"
    assert set(seen["interfaces"]) <= {"lo", "tunl0", "sit0", "ip6tnl0"}
    assert (seen["root"], seen["work"]) == ("OSError", "did")
    assert (seen["setuid"], seen["mount"]) == ("PermissionError", "PermissionError")
    assert (seen["claim"], seen["data"]) == ("the claim", "a result")
    assert (int(seen["caps"], 16), seen["new"]) == (0, "1")
    assert set(seen["environment"]) <= {"HOME", "HOSTNAME", "PATH", "PYTHONDONTWRITEBYTECODE", "LC_CTYPE"}
    assert failed.exit_code == 3
    assert await left(docker) == (0, 0)


async def test_what_a_script_uses_up_is_its_own(backend: ContainerBackend, docker: Engine) -> None:
    async with backend.opened("run-b", 120) as hands:
        memory = await ran(hands, "x = bytearray(700 * 1024 * 1024)\nprint('had it')")
        assert memory.exit_code != 0
        assert "had it" not in memory.out
        bomb = (
            "import os\n"
            "try:\n"
            "    with open('big', 'wb') as file:\n"
            "        for _ in range(80): file.write(bytes(1 << 20)); file.flush()\n"
            "except OSError as error: print(error)\n"
            "os.remove('big')"
        )
        assert "No space left" in (await ran(hands, bomb)).out
        out = await ran(hands, "for _ in range(4000): print('x' * 100)")
        assert out.cut
        assert len(out.out) < 70_000
        forks = (
            "import os, time\n"
            "made = 0\n"
            "try:\n"
            "    for _ in range(1000):\n"
            "        if os.fork() == 0: time.sleep(30); os._exit(0)\n"
            "        made += 1\n"
            "except OSError: pass\n"
            "print(made, flush=True); os._exit(0)"
        )
        many = await ran(hands, forks)
        assert int(many.out.split()[0]) <= container.PIDS
    assert await left(docker) == (0, 0)


async def test_an_endless_script_is_left_and_its_container_goes(
    backend: ContainerBackend, docker: Engine
) -> None:
    async with backend.opened("run-c", 60) as hands:
        assert (await ran(hands, "while True: pass", 0.5)).exit_code is None
    assert await left(docker) == (0, 0)


async def test_runs_share_nothing_and_a_cancelled_one_leaves_nothing(
    backend: ContainerBackend, docker: Engine
) -> None:
    async with backend.opened("run-d", 60) as one, backend.opened("run-e", 60) as other:
        await one.put(f"{WORK}/mine", b"1")
        assert (await ran(other, "import os; print(os.listdir())")).out.strip() == "['.script-1.py']"
    with trio.move_on_after(0.5) as scope:
        async with backend.opened("run-f", 60) as hands:
            await ran(hands, "import time; time.sleep(60)")
    assert scope.cancelled_caught
    assert await left(docker) == (0, 0)


async def test_a_sandbox_that_is_killed_is_told_and_what_is_overdue_is_cleared(
    backend: ContainerBackend, docker: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backend.opened("run-g", 60) as hands:
        (found,) = (await docker.ask("GET", "/containers/json")).read()
        await docker.ask("DELETE", f"/containers/{found['Id']}", query={"force": "1"})
        with pytest.raises(HandsDied):
            await ran(hands, "print(1)")

    async def killed(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(ContainerBackend, "_remove", killed)
    monkeypatch.setattr(leftovers, "OVERTIME_S", 1.0)
    async with backend.opened("run-h", -2):
        pass
    assert (await left(docker))[1] == 1
    await backend.look()
    with trio.fail_after(20):
        while await left(docker) != (0, 0):
            await backend.look()


async def test_every_engine_gives_each_run_a_volume_of_its_own(
    backend: ContainerBackend, docker: Engine
) -> None:
    async with backend.opened("run-j", 60) as one, backend.opened("run-k", 60) as other:
        volumes = (await docker.ask("GET", "/volumes")).read()["Volumes"]
        assert sorted(volume["Name"].rpartition("-")[0] for volume in volumes) == ["work-run-j", "work-run-k"]
        assert {volume["Options"]["o"] for volume in volumes} == {"size=67108864,uid=65532,gid=65532"}
        await one.put(f"{WORK}/mine", b"1")
        assert (await ran(other, "import os; print(os.listdir())")).out.strip() == "['.script-1.py']"


async def test_without_an_engine_there_are_no_scripts(docker: Engine) -> None:
    none = ContainerBackend(Engine("/nowhere/docker.sock"), IMAGE, "work")
    await none.look()
    assert not none.scripts
    with pytest.raises(HandsAway):
        async with none.opened("run-i", 60):
            pass


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "container").strip()
    return Place(f"{service.url}/mcp", token)


@pytest.fixture
def mortal() -> Iterator[Engine]:
    with engine() as found:
        yield found


async def test_an_engine_that_is_killed_costs_a_run_its_scripts_and_nothing_else(
    place: Place, mortal: Engine
) -> None:
    """While a script runs: the attempt is given back. Before one: the run goes on without."""
    backend = ContainerBackend(mortal, IMAGE, "work")
    await backend.look()
    assert backend.scripts

    def script(asked: Asked) -> Reply:
        match len(asked.results):
            case 0:
                return calls(("query_count", {"dataset": "spans"}))
            case 1:
                return calls(("run_python", {"code": "import time; time.sleep(50)"}))
        return calls(("submit_answer", answer()))

    with standin(script) as model:
        async with runner(backend=backend) as client:
            wanted = request(model, place.url, place.token)
            assert isinstance(await client.begin("run.1", wanted), RunStands)
            await trio.to_thread.run_sync(until, lambda: len(model.asked) == 2, 60.0)
            with trio.fail_after(60):
                execs = 0
                while not execs:
                    (found,) = (await mortal.ask("GET", "/containers/json")).read() or [{"Id": "none"}]
                    told = await mortal.ask("GET", f"/containers/{found['Id']}/json")
                    execs = len((told.read().get("ExecIDs") or ()) if told.status == 200 else ())
            kill_engine(mortal)
            lost, _ = await followed(client, "run.1")
            result, events = await ended(client, "run.2", wanted)
    assert lost.failure is not None
    assert lost.failure.kind in ("sandbox_away", "sandbox_died")
    assert result.state == "done", result
    assert "without_scripts" in kinds(events)
    assert result.result is not None
    assert result.result["notes"]
