"""A service begins anew without a refused request: on its own sockets, or on those of whoever holds them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import httpx2
import pytest

from tests.bench.load import fresh, make_template
from tests.e2e.hostile import EXPORT
from tests.service import PLAIN, TRACE_SVC, Service, environment, free_port, running, stop_postgres, until

SPANS = 5
#: grpc gives a connection up that is not greeted within 20 s; a start on a busy machine may take longer.
PATIENCE = ("grpc.min_reconnect_backoff_ms", 120_000)


class Senders:
    """Send batches over and over until they are left; count what was accepted, note what was refused."""

    def __init__(self, service: Service) -> None:
        self._service, self._over, self._lock = service, threading.Event(), threading.Lock()
        self.accepted = 0
        self.refused: list[str] = []
        kinds = (self._kept_alive, self._kept_alive, self._each_anew, self._over_grpc)
        self._threads = [
            threading.Thread(target=kind, args=(make_template(seed, SPANS),))
            for seed, kind in enumerate(kinds)
        ]

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(120)

    def further(self, spans: int) -> Callable[[], bool]:
        """Whether this many more were accepted than now."""
        target = self.accepted + spans
        return lambda: self.accepted >= target or bool(self.refused)

    def _client(self) -> httpx2.Client:
        headers = {
            "Authorization": f"Bearer {self._service.write_key}",
            "Content-Type": "application/x-protobuf",
        }
        return httpx2.Client(base_url=self._service.url, headers=headers, timeout=120, **PLAIN)

    def _note(self, fault: str | None) -> None:
        with self._lock:
            if fault is None:
                self.accepted += SPANS
            else:
                self.refused.append(fault)

    def _post(self, client: httpx2.Client, body: bytes) -> None:
        for again in (True, False):
            try:
                response = client.post("/v1/traces", content=body)
            except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError) as error:
                # A connection that was closed while it was idle and crossed the request: every client opens
                # another one then (RFC 9112 §9.3.1). A port that nobody listens on is no such case.
                if again:
                    continue
                self._note(repr(error))
            except httpx2.TransportError as error:
                self._note(repr(error))
            else:
                self._note(None if response.status_code == 200 else f"{response.status_code} {response.text}")
            return

    def _kept_alive(self, template: Any) -> None:
        with self._client() as client:
            while not self._over.is_set():
                self._post(client, bytes(fresh(template)))

    def _each_anew(self, template: Any) -> None:
        while not self._over.is_set():
            with self._client() as client:
                self._post(client, bytes(fresh(template)))

    def _over_grpc(self, template: Any) -> None:
        metadata = (("authorization", f"Bearer {self._service.write_key}"),)
        address, options = f"127.0.0.1:{self._service.grpc_port}", [PATIENCE]
        with grpc.insecure_channel(address, options) as channel:
            export = channel.unary_unary(EXPORT)
            while not self._over.is_set():
                try:
                    export(bytes(fresh(template)), metadata=metadata, timeout=120)
                except grpc.RpcError as error:
                    self._note(str(error))
                else:
                    self._note(None)


@pytest.mark.alone
def test_a_restart_refuses_no_request_and_loses_no_span() -> None:
    with (
        running(SVC_HTTP_BIND=f"127.0.0.1:{free_port()}", first=True) as service,
        Senders(service) as senders,
    ):
        before = service.health()["components"]["loop"]["details"]["started_at"]
        for _ in range(2):
            until(senders.further(20 * SPANS))
            answer = service.command("restart", timeout_s=180)
            assert f"process {service.process.pid} " in answer
            assert "ready again after" in answer
        until(senders.further(20 * SPANS))
        senders.__exit__()
        assert senders.refused == []
        assert service.process.poll() is None
        assert service.health()["components"]["loop"]["details"]["started_at"] > before
        service.wait_for_spans(senders.accepted)


def restarted(env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What the command says."""
    return subprocess.run(
        [TRACE_SVC, "restart"], env=dict(env), capture_output=True, text=True, timeout=180, check=False
    )


PRICES = '[[price]]\nmodel = "house-model"\ninput = {rate}\n'


@pytest.mark.release
def test_a_service_that_would_not_start_again_stays_as_it_is(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES.format(rate=1))
    settings = {"SVC_HTTP_BIND": f"127.0.0.1:{free_port()}", "SVC_PRICES_FILE": str(prices)}
    with running(as_users_do=True, errors_expected=True, **settings) as service:
        before = service.health()["components"]["loop"]["details"]["started_at"]
        prices.write_text(PRICES.format(rate='"much"'))
        done = subprocess.run(
            [TRACE_SVC, "restart"],
            env=dict(service.env),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 1
        assert "the service was not restarted, because it would not start: " in done.stderr
        assert str(prices) in done.stderr
        # A signal says the same to the log.
        service.process.send_signal(signal.SIGUSR2)
        until(
            lambda: "the next process would not start, so this one keeps running" in service.log.read_text(),
        )
        assert service.health()["components"]["loop"]["details"]["started_at"] == before


IN_FAVOUR: Final = "handing over to the next process"


@pytest.mark.release
def test_a_stop_that_comes_while_it_makes_way_is_a_stop() -> None:
    with running(as_users_do=True, SVC_HTTP_BIND=f"127.0.0.1:{free_port()}") as service:
        service.process.send_signal(signal.SIGUSR2)
        until(lambda: IN_FAVOUR in service.log.read_text())
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(60) == 0
        assert service.log.read_text().count("event=stopped") == 1


@pytest.mark.release
def test_whoever_asks_again_and_again_meets_no_moment_in_which_it_dies() -> None:
    with running(as_users_do=True, SVC_HTTP_BIND=f"127.0.0.1:{free_port()}") as service:

        def made_way_twice() -> bool:
            if service.process.poll() is None:
                service.process.send_signal(signal.SIGUSR2)
            # One at a time finds out whether it would start, however many ask.
            assert len(service.children("serve\0--check")) <= 1
            return service.process.poll() is not None or service.log.read_text().count(IN_FAVOUR) == 2

        until(made_way_twice)
        assert service.process.poll() is None


@pytest.mark.release
def test_the_port_that_a_scheme_has_by_itself_is_a_port_as_any_other() -> None:
    # An address of this machine that nobody else uses.
    address = f"127.{os.getpid() % 250 + 1}.88.1"
    try:
        with socket.create_server((address, 80)):
            pass
    except PermissionError:
        pytest.skip("this account may not listen on port 80")
    with running(as_users_do=True, SVC_HTTP_BIND=f"{address}:80") as service:
        assert "ready again after" in service.command("restart", timeout_s=180)


@pytest.mark.release
def test_a_service_without_standard_streams_starts_and_begins_anew() -> None:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="trace-svc-") as fresh:
        # The account of the database passes through.
        os.chmod(fresh, 0o755)
        folder = Path(fresh) / "data"
        env = environment(folder, SVC_HTTP_BIND=f"127.0.0.1:{port}", SVC_INGEST_OTLP_TRANSPORT="HTTP")
        process = subprocess.Popen(["sh", "-c", f"exec {TRACE_SVC} serve 0<&- 1>&- 2>&-"], env=env)

        def answers() -> bool:
            assert process.poll() is None
            with suppress(httpx2.TransportError):
                report = httpx2.get(f"http://127.0.0.1:{port}/actuator/health", timeout=60, **PLAIN)
                return report.status_code == 200
            return False

        try:
            until(answers)
            assert "ready again after" in restarted(env).stdout
            assert {os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)} == {os.devnull}
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait(10)
            stop_postgres(folder)


@pytest.mark.release
def test_a_process_that_ends_in_place_of_beginning_anew_is_not_waited_for() -> None:
    with running(as_users_do=True, errors_expected=True, SVC_HTTP_BIND=f"127.0.0.1:{free_port()}") as service:
        with subprocess.Popen(
            [TRACE_SVC, "restart", "--timeout", "600"],
            env=dict(service.env),
            stderr=subprocess.PIPE,
            text=True,
        ) as asking:
            until(lambda: IN_FAVOUR in service.log.read_text() or asking.poll() is not None)
            # As yet nobody has asked for its status.
            service.process.kill()
            _, said = asking.communicate(timeout=120)
        assert asking.returncode == 1
        assert f"process {service.process.pid} ended and did not restart" in said


@pytest.mark.release
def test_prices_that_change_while_it_begins_anew_do_not_end_it(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES.format(rate=1))
    settings = {"SVC_HTTP_BIND": f"127.0.0.1:{free_port()}", "SVC_PRICES_FILE": str(prices)}
    with running(as_users_do=True, **settings) as service:
        service.process.send_signal(signal.SIGUSR2)
        until(lambda: "event=stopped" in service.log.read_text())

        def is_up_again() -> bool:
            assert service.process.poll() is None
            service.process.send_signal(signal.SIGHUP)
            return service.log.read_text().count("embedded server up") == 2

        until(is_up_again)


def test_there_is_nothing_to_restart_where_no_service_runs(tmp_path: Path) -> None:
    env = {**os.environ, "SVC_HTTP_BIND": f"127.0.0.1:{free_port()}", "SVC_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [TRACE_SVC, "restart"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "`trace-svc serve` starts one" in done.stderr


def handing_over(folder: Path, *ports: int) -> Path:
    """A program that listens on these ports and becomes the service, as a socket unit of systemd does."""
    program = folder / "handing-over"
    program.write_text(
        f"""#!{sys.executable}
import os, socket, sys
held = [socket.create_server(("127.0.0.1", port)) for port in {ports!r}]
for fd, sock in enumerate(held, 63):
    os.dup2(sock.fileno(), fd)
for fd in range(3, 3 + len(held)):
    os.dup2(fd + 60, fd)
    os.set_inheritable(fd + 60, False)
env = {{**os.environ, "LISTEN_FDS": str(len(held)), "LISTEN_PID": str(os.getpid())}}
os.execve({TRACE_SVC!r}, [{TRACE_SVC!r}, *sys.argv[1:]], env)
"""
    )
    program.chmod(0o755)
    return program


def test_who_connects_to_a_socket_that_was_handed_over_is_answered_when_the_service_is_ready(
    tmp_path: Path,
) -> None:
    port, other = free_port(), free_port()
    answers: list[int] = []

    def ask() -> None:
        # The program listens at once, long before the service accepts.
        while not answers:
            try:
                answer = httpx2.get(f"http://127.0.0.1:{port}/actuator/health", timeout=120, **PLAIN)
            except httpx2.ConnectError:
                continue
            answers.append(answer.status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        program = handing_over(tmp_path, port, other)
        with running(program=program, SVC_HTTP_BIND=f"127.0.0.1:{port}") as service:
            asking.join(120)
            assert answers == [200]
            lines = service.log.read_text().splitlines()
            (warning,) = (line for line in lines if "no setting asks for" in line)
            assert str(other) in warning
    finally:
        answers.append(0)
        asking.join(120)
