"""Hosted microVMs as sandboxes: what is asked of their host, what comes of its failures, what is left there.

The stand-in is judged by the library of the host whose interface it is.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from svc.outside.microvms import MicroVmHost
from svc.runner.sandbox import OUT_BYTES, WORK, Sandbox, SandboxAway, SandboxDied, ScriptEnd
from svc.runner.sandboxes.hosted import MACHINES, HostedBackend
from tests import wire
from tests.e2e.hostile import trace_id
from tests.runner.running import Place, answer, ended, kinds, request, runner
from tests.runner.sandboxes.microvm_host import KEY, StandInHost, standin_host
from tests.runner.standin_model import Asked, Reply, calls, standin
from tests.service import Service, until


@pytest.fixture
def host() -> Iterator[StandInHost]:
    with standin_host() as found:
        yield found


@pytest.fixture
async def backend(host: StandInHost) -> HostedBackend:
    made = of(host)
    await made.look()
    assert made.scripts
    return made


def of(host: StandInHost, key: str = KEY) -> HostedBackend:
    return HostedBackend(MicroVmHost(host.url, key, host.url), "base")


def headers_of(host: StandInHost, path: str) -> dict[str, str]:
    """Those of the last request to a path."""
    return [headers for _, at, headers, _ in host.heard if at == path][-1]


def test_the_hosts_own_library_takes_the_stand_in_for_it(host: StandInHost) -> None:
    from e2b import CommandExitException, Sandbox, SandboxQuery

    there: Any = {"api_key": KEY, "api_url": host.url, "sandbox_url": host.url}
    noted = {"trace-svc": "sandbox", "trace-svc.run": "a run.1"}
    box = Sandbox.create("base", timeout=60, metadata=noted, allow_internet_access=False, **there)
    box.commands.run(f"mkdir -p {WORK}/data", user="root")
    box.files.write(f"{WORK}/claim.json", "the claim", user="user")
    assert box.files.read(f"{WORK}/claim.json", user="user") == "the claim"
    done = box.commands.run("cat claim.json", cwd=WORK, user="user")
    assert (done.exit_code, done.stdout) == (0, "the claim")
    with pytest.raises(CommandExitException) as failed:
        box.commands.run("exit 3", cwd=WORK)
    assert failed.value.exit_code == 3
    host.page = 1
    Sandbox.create("base", timeout=60, metadata=noted, **there)
    pages = Sandbox.list(SandboxQuery(metadata=noted), **there)
    found = []
    while pages.has_next:
        found += [one.sandbox_id for one in pages.next_items()]
    assert len(found) == 2
    assert box.kill()
    assert list(host.boxes) == found[1:]


async def test_what_is_asked_of_the_host_is_what_its_library_asks(host: StandInHost) -> None:
    from e2b import Sandbox

    there: Any = {"api_key": KEY, "api_url": host.url, "sandbox_url": host.url}
    with standin_host() as other:
        async with of(other).opened("run.1", 60) as sandbox:
            await sandbox.put(f"{WORK}/claim.json", b"the claim")
            await sandbox.run("print(1)", 30)
        box = Sandbox.create("base", timeout=120, metadata={}, allow_internet_access=False, **there)
        box.files.write(f"{WORK}/claim.json", b"the claim", user="user")
        box.commands.run("true", user="user")
        box.kill()
        (theirs,), (ours,) = host.bodies("/v2/sandboxes"), other.bodies("/v2/sandboxes")
        # Without the network, for no longer than the run and a minute.
        assert ours.keys() <= theirs.keys()
        assert (ours["templateID"], ours["timeout"], ours["allow_internet_access"]) == ("base", 120, False)
        assert theirs["allow_internet_access"] is False
        for path, names in (
            ("/v2/sandboxes", {"x-api-key", "content-type"}),
            ("/files", {"e2b-sandbox-id", "e2b-sandbox-port", "x-access-token"}),
            (
                "/process.Process/Start",
                {
                    *("e2b-sandbox-id", "e2b-sandbox-port", "x-access-token", "authorization"),
                    *("content-type", "connect-protocol-version", "connect-timeout-ms"),
                },
            ),
        ):
            own, library = headers_of(other, path), headers_of(host, path)
            assert names <= own.keys()
            assert names <= library.keys()
            same = names - {"x-access-token", "e2b-sandbox-id", "connect-timeout-ms"}
            assert {name: own[name] for name in same} == {name: library[name] for name in same}
        # The key of the host is for the host.
        assert all(
            KEY not in json.dumps(headers) for _, at, headers, _ in other.heard if "sandboxes" not in at
        )
        started = [body for _, at, _, body in other.heard if at.endswith("/Start")][-1]
        asked = json.loads(started[5:])
        assert (started[0], int.from_bytes(started[1:5], "big")) == (0, len(started) - 5)
        assert (asked["process"]["cmd"], asked["process"]["cwd"], asked["stdin"]) == ("python3", WORK, False)
        assert not other.boxes


async def test_a_script_reads_its_files_and_says_how_it_ended(
    backend: HostedBackend, host: StandInHost
) -> None:
    async with backend.opened("run.a", 60) as sandbox:
        await sandbox.put(f"{WORK}/claim.json", b"the claim")
        await sandbox.put(f"{WORK}/data/q1.json", b"a result")
        read = "print(open('claim.json').read(), open('data/q1.json').read())"
        assert await sandbox.run(read, 30) == ScriptEnd(0, "the claim a result\n")
        failed = await sandbox.run("import sys; print('why', file=sys.stderr); sys.exit(3)", 30)
        assert (failed.exit_code, failed.out) == (3, "why\n")
        killed = await sandbox.run("import os; os.kill(os.getpid(), 9)", 30)
        assert killed.exit_code == -1
        much = await sandbox.run("for _ in range(4000): print('x' * 100)", 30)
        assert much.cut
        assert len(much.out) < OUT_BYTES + 20
    assert not host.boxes


async def test_an_endless_script_is_left_and_its_machine_goes(
    backend: HostedBackend, host: StandInHost
) -> None:
    async with backend.opened("run.b", 60) as sandbox:
        end = await sandbox.run("while True: pass", 0.5)
        assert end.exit_code is None
    assert not host.boxes
    with trio.move_on_after(0.5) as scope:
        async with backend.opened("run.c", 60) as sandbox:
            await sandbox.run("import time; time.sleep(60)", 50)
    assert scope.cancelled_caught
    assert not host.boxes


async def test_there_are_never_more_machines_than_may_be(backend: HostedBackend, host: StandInHost) -> None:
    refused: list[str] = []
    full = trio.Event()

    async def open_one(number: int) -> None:
        try:
            async with backend.opened(f"run.{number}", 60):
                await full.wait()
        except SandboxAway as away:
            refused.append(str(away))
        if len(refused) == 2:
            full.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for number in range(MACHINES + 2):
                nursery.start_soon(open_one, number)
    assert host.most == MACHINES
    assert refused == [f"{MACHINES} microVMs are there, and {MACHINES} may be"] * 2
    assert not host.boxes


async def test_what_a_runner_that_died_left_behind_is_listed_and_ended(
    backend: HostedBackend, host: StandInHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = backend.host
    assert client is not None
    overdue = {"trace-svc": "sandbox", "trace-svc.run": "old.1", "trace-svc.deadline": "1000"}
    for _ in range(3):
        await client.begin("base", 60, overdue)
    strangers = await client.begin("base", 60, {"of": "somebody else"})
    living = await client.begin("base", 60, {**overdue, "trace-svc.deadline": "9999999999"})
    host.page = 2
    await backend.look()
    assert set(host.boxes) == {strangers.id, living.id}


async def test_what_was_made_and_never_told_is_ended(backend: HostedBackend, host: StandInHost) -> None:
    def drops(method: str, path: str) -> int | bytes | None:
        if (method, path) != ("POST", "/v2/sandboxes"):
            return None
        asked = json.loads(host.heard[-1][3])
        host.fail = lambda method, path: None
        host.boxes["told-to-nobody"] = made(host, asked)
        return b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{"

    host.fail = drops
    with pytest.raises(SandboxAway):
        async with backend.opened("run.d", 60):
            pass
    assert not host.boxes
    assert not backend.scripts


def made(host: StandInHost, asked: Any) -> Any:
    from pathlib import Path

    from tests.runner.sandboxes.microvm_host import Box

    return Box("told-to-nobody", Path("/nowhere"), "", asked)


@pytest.mark.parametrize(
    "instead",
    [
        401,
        429,
        500,
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n[[[[",
        b"HTTP/1.1 201 Created\r\ncontent-length: 30\r\n\r\n" + b'{"sandboxID": "../../escape" }',
        b"nothing that is HTTP\r\n\r\n",
    ],
)
async def test_a_host_that_fails_is_told_once_and_scripts_are_off_until_it_answers(
    instead: Any, host: StandInHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    backend = of(host)
    host.fail = lambda method, path: instead if (method, path) != ("GET", "/v2/sandboxes") else None
    await backend.look()
    for _ in range(2):
        with pytest.raises(SandboxAway):
            async with backend.opened("run.e", 60):
                pass
    assert not backend.scripts
    assert len(caplog.records) == 1
    assert KEY not in caplog.text
    host.fail = lambda method, path: instead
    await backend.look()
    assert not backend.scripts
    host.fail = lambda method, path: None
    await backend.look()
    assert bool(backend.scripts), "it answers again"
    assert not host.boxes


async def test_without_a_key_or_with_another_there_are_no_scripts(host: StandInHost) -> None:
    for none in (HostedBackend(None, "base"), of(host, "another key")):
        await none.look()
        assert not none.scripts
        with pytest.raises(SandboxAway):
            async with none.opened("run.f", 60):
                pass


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x00\x02{}\x02\x00\x00\x00\x1a" + b'{"error":{"code":"unknown"}}'[:26],
        b'\x00\x00\x00\x00\x28{"event":{"data":{"stdout":"not base64"}}}'[:45],
        b"\x01\x00\x00\x00\x02{}",
    ],
    ids=["nothing", "a huge frame", "no object", "an error", "no base64", "compressed"],
)
async def test_a_machine_that_answers_as_none_does_has_died(
    stream: bytes, backend: HostedBackend, host: StandInHost
) -> None:
    async with backend.opened("run.g", 60) as sandbox:
        await sandbox.put(f"{WORK}/x", b"")
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(stream)}\r\n\r\n".encode()
        host.fail = lambda method, path: head + stream if path.endswith("/Start") else None
        with pytest.raises(SandboxDied):
            await sandbox.run("print(1)", 10)
    host.fail = lambda method, path: None
    assert not host.boxes


async def test_a_machine_that_is_ended_meanwhile_is_told(backend: HostedBackend, host: StandInHost) -> None:
    async def ended_soon(sandbox: Sandbox) -> None:
        with pytest.raises(SandboxDied):
            await sandbox.run("import time; time.sleep(60)", 50)

    async with backend.opened("run.h", 60) as sandbox:
        with trio.fail_after(40):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ended_soon, sandbox)
                (box,) = host.boxes.values()
                await trio.to_thread.run_sync(until, lambda: len(box.processes) == 2)
                host.boxes.pop(box.id).end()
        with pytest.raises(SandboxDied):
            await sandbox.put(f"{WORK}/x", b"")


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "hosted").strip()
    return Place(f"{service.url}/mcp", token)


def counts_by_a_script(asked: Asked) -> Reply:
    match len(asked.results):
        case 0:
            return calls(("query_count", {"dataset": "spans"}))
        case 1:
            return calls(("run_python", {"code": "print(open('data/q1.json').read())"}))
    ref = "q1" if "go on without run_python" in asked.results[1] else "s1"
    kind = "query" if ref == "q1" else "script"
    cited = [{"kind": kind, "id": ref, "note": "counted"}]
    return calls(("submit_answer", {**answer(), "citations": cited}))


async def test_a_run_has_its_scripts_run_there_and_leaves_nothing(
    backend: HostedBackend, host: StandInHost, place: Place
) -> None:
    with standin(counts_by_a_script) as model:
        async with runner(backend=backend) as client:
            result, events = await ended(client, "run.1", request(model, place.url, place.token))
        assert '"count"' in model.asked[2].results[1]
    assert result.state == "done", result
    assert kinds(events) == ["accepted", "turn", "tool", "turn", "sandbox_up", "script", "turn", "ended"]
    assert result.result is not None
    assert result.result["notes"] == []
    assert host.made == 1
    assert not host.boxes
    # Nothing that opens the project went there.
    assert place.token not in str(host.heard)


async def test_scripts_read_the_whole_of_what_the_model_saw_a_part_of(
    backend: HostedBackend, host: StandInHost, place: Place, service: Service
) -> None:
    trace = trace_id()
    spans = [wire.span(f"{number} {'look' * 40}", trace_id=trace) for number in range(100)]
    assert service.send(wire.request(*spans).SerializeToString()).status_code == 200
    service.wait_for_spans(100, trace_id=trace.hex())
    read = "import json; print(len(json.load(open('data/q1.json'))['spans']), 'spans')"

    def script(asked: Asked) -> Reply:
        match len(asked.results):
            case 0:
                return calls(("list_spans", {"trace_id": trace.hex(), "limit": 100}))
            case 1:
                return calls(("run_python", {"code": read}))
        cited = [{"kind": "script", "id": "s1", "note": "counted"}]
        return calls(("submit_answer", {**answer(), "citations": cited}))

    with standin(script) as model:
        async with runner(backend=backend) as client:
            result, _ = await ended(client, "run.1", request(model, place.url, place.token))
        first, second = model.asked[2].results
    assert result.state == "done", result
    assert re.match(
        r"\[q1\] rows 1–\d\d of 100 in spans; scripts read all of it in " + f"{WORK}/data/q1.json\n", first
    )
    assert "100 spans" in second


async def test_a_run_that_gets_no_machine_goes_on_without_scripts_and_says_so(
    backend: HostedBackend, host: StandInHost, place: Place
) -> None:
    with standin(counts_by_a_script) as model:
        async with runner(backend=backend) as client:
            host.fail = lambda method, path: 500 if method == "POST" else None
            result, events = await ended(client, "run.1", request(model, place.url, place.token))
            health = await client.health()
    assert result.state == "done", result
    assert [event["why"] for event in events if event["kind"] == "without_scripts"] == [
        "the host of microVMs answers 500"
    ]
    assert result.result is not None
    assert result.result["notes"] == ["No script could be run: the host of microVMs answers 500."]
    assert getattr(health, "scripts", None) is False


async def test_a_sandbox_that_dies_is_made_anew_once(
    backend: HostedBackend, host: StandInHost, place: Place
) -> None:
    def stubborn(asked: Asked) -> Reply:
        return calls(("run_python", {"code": "import time; time.sleep(60)"}))

    def kill_next(made: int) -> None:
        until(lambda: host.made >= made and any(len(box.processes) == 2 for box in host.boxes.values()))
        (box,) = host.boxes.values()
        host.boxes.pop(box.id).end()

    with standin(stubborn) as model:
        async with runner(backend=backend) as client, trio.open_nursery() as nursery:
            for made in (1, 2):
                nursery.start_soon(trio.to_thread.run_sync, kill_next, made)
            result, events = await ended(client, "run.1", request(model, place.url, place.token))
    assert result.failure is not None
    assert result.failure.kind == "sandbox_died"
    assert kinds(events).count("sandbox_up") == host.made == 2
    assert "the sandbox died and is new" in model.asked[1].results[0]
