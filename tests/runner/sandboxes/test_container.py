"""Containers as sandboxes, in a real engine: what a script cannot reach, use up or leave behind."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator

import pytest
import trio

from protocol.running import RunStands
from svc.outside.engine import Engine, pull_query
from svc.runner.sandbox import WORK, Sandbox, SandboxAway, SandboxDied, ScriptEnd
from svc.runner.sandboxes import container, leftovers
from svc.runner.sandboxes.container import ContainerBackend
from tests.runner.running import Place, answer, ended, followed, kinds, request, runner
from tests.runner.sandboxes.engine import IMAGE, breaking, engine, kill_engine
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


CITED = [{"kind": "script", "id": "s2", "note": "ran"}]
EMPTY = {"fromSrc": "-", "repo": "trace-svc-empty", "tag": "latest"}


def sleeper() -> bytes:
    """An image that can wait, and no more."""
    sleep = shutil.which("sleep") or "/bin/sleep"
    told = subprocess.run(["ldd", sleep], capture_output=True, text=True, check=True).stdout
    image = io.BytesIO()
    with tarfile.open(fileobj=image, mode="w") as tar:
        for path in sorted({"/bin/sleep", *(word for word in told.split() if word.startswith("/"))}):
            tar.add(os.path.realpath(path), arcname=path)
    return image.getvalue()


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "container").strip()
    return Place(f"{service.url}/mcp", token)


async def left(docker: Engine) -> tuple[int, int]:
    """Containers and volumes."""
    containers = (await docker.ask("GET", "/containers/json", query={"all": "1"})).read()
    return len(containers), len((await docker.ask("GET", "/volumes")).read()["Volumes"] or ())


async def ran(sandbox: Sandbox, code: str, seconds: float = 30.0) -> ScriptEnd:
    return await sandbox.run(code, seconds)


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
    async with backend.opened("run-a", 60) as sandbox:
        await sandbox.put(f"{WORK}/claim.json", b"the claim")
        await sandbox.put(f"{WORK}/data/q1.json", b"a result")
        end = await ran(sandbox, PROBES)
        assert end.exit_code == 0, end.out
        seen = json.loads(end.out)
        failed = await ran(sandbox, "raise SystemExit(3)")
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
    async with backend.opened("run-b", 120) as sandbox:
        memory = await ran(sandbox, "x = bytearray(700 * 1024 * 1024)\nprint('had it')")
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
        assert "No space left" in (await ran(sandbox, bomb)).out
        out = await ran(sandbox, "for _ in range(4000): print('x' * 100)")
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
        many = await ran(sandbox, forks)
        assert int(many.out.split()[0]) <= container.PIDS
    assert await left(docker) == (0, 0)


REFUSED = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("path", ["/containers/work-run.1-1/exec", "/exec/"])
@pytest.mark.parametrize("reply", [b"", REFUSED], ids=["dropped", "refused"])
async def test_a_container_whose_exec_is_broken_is_made_anew(
    path: str, reply: bytes, docker: Engine, place: Place
) -> None:
    def script(asked: Asked) -> Reply:
        match len(asked.results):
            case 0 | 1:
                return calls(("run_python", {"code": "print('works again')"}))
        return calls(("submit_answer", answer() | {"citations": CITED}))

    async with breaking(docker, path, 1, reply) as engine:
        backend = ContainerBackend(engine, IMAGE, "work")
        await backend.look()
        with standin(script) as model:
            async with runner(backend=backend) as client:
                result, events = await ended(client, "run.1", request(model, place.url, place.token))
            results = model.asked[-1].results
    assert "the sandbox died and is new" in results[0]
    assert "works again" in results[1]
    assert result.state == "done", result
    assert kinds(events).count("sandbox_up") == 2
    assert await left(docker) == (0, 0)


async def test_an_image_that_can_run_no_script_costs_a_run_its_scripts_and_nothing_else(
    docker: Engine, place: Place
) -> None:
    assert (
        await docker.ask("POST", "/images/create", query=EMPTY, raw=sleeper(), timeout_s=120)
    ).status == 200
    backend = ContainerBackend(docker, "trace-svc-empty:latest", "work")
    await backend.look()

    def script(asked: Asked) -> Reply:
        match len(asked.results):
            case 0:
                return calls(("query_count", {"dataset": "spans"}))
            case 1 | 2:
                return calls(("run_python", {"code": "print(1)"}))
        return calls(("submit_answer", answer()))

    with standin(script) as model:
        async with runner(backend=backend) as client:
            result, events = await ended(client, "run.1", request(model, place.url, place.token))
    assert result.state == "done", result
    assert kinds(events).count("without_scripts") == 1
    assert result.result is not None
    why = "the sandbox cannot be used: its image has no python3"
    assert result.result["notes"] == [f"No script could be run: {why}."]
    assert await left(docker) == (0, 0)


@pytest.mark.parametrize(
    ("image", "name", "tag"),
    [
        ("python", "python", "latest"),
        ("python:3.12-slim", "python", "3.12-slim"),
        ("team/python:3.12", "team/python", "3.12"),
        ("host:5000/image", "host:5000/image", "latest"),
        ("host:5000/team/image:1.2", "host:5000/team/image", "1.2"),
        ("localhost:5000/image", "localhost:5000/image", "latest"),
        (f"image@sha256:{'a' * 64}", "image", f"sha256:{'a' * 64}"),
        (f"host:5000/image@sha256:{'a' * 64}", "host:5000/image", f"sha256:{'a' * 64}"),
        (f"host:5000/image:1.2@sha256:{'a' * 64}", "host:5000/image", f"sha256:{'a' * 64}"),
    ],
)
def test_an_image_is_named_with_its_registrys_port_or_its_digest(image: str, name: str, tag: str) -> None:
    assert pull_query(image) == {"fromImage": name, "tag": tag}


async def test_an_endless_script_is_left_and_its_container_goes(
    backend: ContainerBackend, docker: Engine
) -> None:
    async with backend.opened("run-c", 60) as sandbox:
        assert (await ran(sandbox, "while True: pass", 0.5)).exit_code is None
    assert await left(docker) == (0, 0)


async def test_runs_share_nothing_and_a_cancelled_one_leaves_nothing(
    backend: ContainerBackend, docker: Engine
) -> None:
    async with backend.opened("run-d", 60) as one, backend.opened("run-e", 60) as other:
        await one.put(f"{WORK}/mine", b"1")
        assert (await ran(other, "import os; print(os.listdir())")).out.strip() == "['.script-1.py']"
    with trio.move_on_after(0.5) as scope:
        async with backend.opened("run-f", 60) as sandbox:
            await ran(sandbox, "import time; time.sleep(60)")
    assert scope.cancelled_caught
    assert await left(docker) == (0, 0)


async def test_a_sandbox_that_is_killed_is_told_and_what_is_overdue_is_cleared(
    backend: ContainerBackend, docker: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backend.opened("run-g", 60) as sandbox:
        (found,) = (await docker.ask("GET", "/containers/json")).read()
        await docker.ask("DELETE", f"/containers/{found['Id']}", query={"force": "1"})
        with pytest.raises(SandboxDied):
            await ran(sandbox, "print(1)")

    async def killed(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(ContainerBackend, "_remove", killed)
    monkeypatch.setattr(leftovers, "OVERTIME_S", 1.0)
    async with backend.opened("run-h", -2):
        pass
    assert (await left(docker))[1] == 1
    await backend.look()
    with trio.fail_after(60):
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
    with pytest.raises(SandboxAway):
        async with none.opened("run-i", 60):
            pass


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
