"""Sockets that were handed over are taken by the process that they are for, and by none that it starts."""

from __future__ import annotations

import os
import re
import socket

import pytest

from svc.front.server.listening import AddressTaken, bound
from svc.runtime.handover import Inherited, Successor


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "some", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "0", "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "http"},
    ],
)
def test_what_is_meant_for_another_process_is_not_taken(variables: dict[str, str]) -> None:
    environ = {**variables, "HOME": "/root"}
    inherited = Inherited.take(environ)
    assert environ == {"HOME": "/root"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert inherited.at(taken.getsockname()[1]) is None


def test_a_listener_takes_the_socket_of_its_port_once_and_what_is_left_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, other = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    inherited = Inherited([one, other])
    port = one.getsockname()[1]
    with bound("127.0.0.1", port, "SVC_HTTP_BIND", inherited.at(port)) as sock:
        assert sock is one
    with bound("127.0.0.1", port, "SVC_HTTP_BIND", inherited.at(port)) as sock:
        assert sock is not one
    inherited.close()
    assert other.fileno() == -1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(("host", "wide"), [("127.0.0.1", "0.0.0.0"), ("localhost", "::"), ("::1", "::")])
def test_a_socket_that_others_reach_is_not_taken_for_a_setting_that_says_they_do_not(
    host: str, wide: str
) -> None:
    family = socket.AF_INET6 if ":" in wide else socket.AF_INET
    sock = socket.create_server((wide, 0), family=family)
    port = sock.getsockname()[1]
    with pytest.raises(AddressTaken, match=f"listens on {re.escape(wide)}, and SVC_HTTP_BIND is {host}"):
        bound(host, port, "SVC_HTTP_BIND", sock)
    assert sock.fileno() == -1
    # What the setting names may be narrower than it says.
    with socket.create_server(("127.0.0.1", 0)) as narrow:
        assert bound("0.0.0.0", narrow.getsockname()[1], "SVC_HTTP_BIND", narrow) is narrow


def test_a_socket_that_is_held_for_a_successor_does_not_begin_to_block() -> None:
    # The copies share one file description: `socket.dup` sets it to blocking for both.
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        Successor().keep(sock)
        assert os.get_blocking(sock.fileno()) is False
