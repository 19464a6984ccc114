"""Reading the first message of a TLS client, whatever it is."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.front.server.tls import hello_protocols


def hello(*protocols: str, name: str | None = "traces.example.org") -> bytes:
    """The ClientHello of a real client, without the head of its record."""
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(list(protocols))
    context.check_hostname = name is not None
    read, written = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(read, written, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return written.read()[5:]


@pytest.mark.parametrize("protocols", [(), ("acme-tls/1",), ("h2", "http/1.1"), ("acme-tls/1", "h2")])
@pytest.mark.parametrize("name", ["traces.example.org", None])
def test_the_protocols_of_a_real_client_are_read(protocols: tuple[str, ...], name: str | None) -> None:
    assert hello_protocols(hello(*protocols, name=name)) == list(protocols)


@given(st.binary(max_size=400))
def test_whatever_else_comes_names_none_and_raises_nothing(data: bytes) -> None:
    assert hello_protocols(b"\x02" + data) == []
    hello_protocols(data)


WHOLE = hello("acme-tls/1")


@given(st.data())
def test_a_message_that_is_cut_or_changed_anywhere_raises_nothing(data: st.DataObject) -> None:
    whole = WHOLE
    hello_protocols(whole[: data.draw(st.integers(0, len(whole)))])
    at = data.draw(st.integers(0, len(whole) - 1))
    hello_protocols(whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :])
