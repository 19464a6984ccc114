"""Laws of sending: which addresses, how long, how much; what a status means; mails with and without TLS."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trio
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from protocol.alerts import HttpSending, MailSending, Undelivered
from protocol.refusals import ADDRESS_IN_THE_CLEAR, ADDRESS_NEAR_FOR_ALERTS, ADDRESS_NEVER
from svc.outside.addresses import LOCAL_NETWORKS
from svc.outside.alerts import AlertSender
from svc.outside.smtp import THREADS as smtp_threads
from svc.outside.smtp import MailServer
from tests.certificates import mount, pair_for, root_pem
from tests.outside.test_http import rebound, says, serving
from tests.receiver import receiving
from tests.service import free_port

NEAR = AlertSender(LOCAL_NETWORKS, None)
NOWHERE = AlertSender((), None)
MAIL = MailSending(("ann@example.org", "bob@example.org"), "It fails", "It fails.\n", "msg_7")


def posting(url: str, body: bytes = b"{}") -> HttpSending:
    return HttpSending(url, {"content-type": "application/json"}, body)


async def sent(sender: AlertSender, url: str) -> Any:
    return await sender.send(posting(url))


async def why(sender: AlertSender, url: str) -> Undelivered:
    found = await sent(sender, url)
    assert isinstance(found, Undelivered)
    return found


async def test_what_is_taken_is_told_by_its_status() -> None:
    with receiving() as receiver:
        for status in (200, 202, 204):
            receiver.status = status
            assert await sent(NEAR, receiver.url) == status
        assert receiver.taken[0].body == b"{}"


@pytest.mark.parametrize(
    ("status", "answers", "again_s", "gone"),
    [
        (302, {"location": "http://169.254.169.254/"}, None, False),
        (400, {}, None, False),
        (410, {}, None, True),
        (429, {"retry-after": "120"}, 120.0, False),
        (503, {"retry-after": "7"}, 7.0, False),
        (500, {"retry-after": "7"}, None, False),
        (429, {"retry-after": "soon"}, None, False),
        (429, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0, False),
        (429, {"retry-after": "9" * 60}, float("9" * 60), False),
    ],
)
async def test_a_status_says_what_to_do(
    status: int, answers: dict[str, str], again_s: float | None, gone: bool
) -> None:
    with receiving() as receiver:
        receiver.status, receiver.answers = status, answers
        told = await why(NEAR, receiver.url)
        assert (told.status, told.again_s, told.gone) == (status, again_s, gone)
        assert str(status) in told.why
        assert len(receiver.taken) == 1, "no redirect is followed"


async def test_in_the_clear_it_connects_only_to_networks_that_are_listed() -> None:
    with receiving() as receiver:
        assert (await why(NOWHERE, receiver.url)).why == ADDRESS_IN_THE_CLEAR
        other = AlertSender((ip_network("10.0.0.0/8"),), None)
        assert (await why(other, receiver.url)).why == ADDRESS_IN_THE_CLEAR
        assert receiver.taken == []


async def test_with_tls_private_addresses_are_refused_by_our_own_words() -> None:
    with receiving() as receiver:
        url = receiver.url.replace("http:", "https:")
        assert (await why(NOWHERE, url)).why == ADDRESS_NEAR_FOR_ALERTS
        assert receiver.taken == []


async def test_the_metadata_of_clouds_is_never_reached() -> None:
    everything = AlertSender((ip_network("0.0.0.0/0"),), None)
    for scheme in ("http", "https"):
        assert (await why(everything, f"{scheme}://169.254.169.254/latest")).why == ADDRESS_NEVER


async def test_a_name_that_is_bound_to_another_address_later_gains_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(partial(says, head="HTTP/1.1 204 No Content", body=b"")) as url:
        port = url.rpartition(":")[2]
        asked = rebound(monkeypatch)
        assert await sent(NEAR, f"http://hooks.example:{port}/in") == 204
        assert asked == ["hooks.example"]
        # The next message asks anew, and hears the other address.
        assert (await why(NEAR, f"http://hooks.example:{port}/in")).why == ADDRESS_NEVER


async def test_a_huge_answer_is_not_read_and_a_slow_one_is_left() -> None:
    written = 0

    async def endless(stream: trio.SocketStream) -> None:
        nonlocal written
        await stream.receive_some(65536)
        try:
            await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                await stream.send_all(b"x" * 65536)
                written += 65536
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async with serving(endless) as url:
        assert await sent(NEAR, url) == 200
        # What the kernel buffers, and no more.
        assert written < 32 * 1024 * 1024

    async def silent(_stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with serving(silent) as url:
        assert (await why(AlertSender(LOCAL_NETWORKS, None, 0.1), url)).why == "no answer within 0.1 s"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x?token=planted", "https://nowhere.invalid/planted"])
async def test_nothing_of_an_address_stands_in_what_is_told(url: str) -> None:
    told = await why(NEAR, url)
    assert "planted" not in told.why
    assert "127.0.0.1" not in told.why


class Inbox:
    """Keeps mails, and refuses `nobody@`."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_RCPT(
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if address.startswith("nobody@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        self.mails.append((envelope, message_from_bytes(envelope.content, policy=policy.default)))
        return "250 taken"


@contextmanager
def smtp(context: ssl.SSLContext | None, *, implicit: bool = False, auth: bool = False) -> Iterator[Any]:
    inbox = Inbox()

    def check(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        good = isinstance(data, LoginPassword) and (data.login, data.password) == (b"ann", b"p w")
        return AuthResult(success=good)

    more: dict[str, Any] = {"authenticator": check, "auth_required": True} if auth else {}
    if context is not None and not implicit:
        more |= {"tls_context": context, "require_starttls": True}
    port = free_port()
    shown = context if implicit else None
    # A loop by its own name: inside Trio, trio-asyncio makes no other.
    loop = asyncio.SelectorEventLoop()
    controller = Controller(inbox, "127.0.0.1", port, loop, ssl_context=shown, **more)
    controller.start()
    try:
        yield inbox, port
    finally:
        controller.stop()
        loop.close()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server on this machine shows, and what it is trusted by."""
    mount(tmp_path / "certs", pair_for("localhost"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certs/tls.crt", tmp_path / "certs/tls.key")
    (tmp_path / "ca.pem").write_bytes(root_pem())
    return context, tmp_path / "ca.pem"


async def test_a_mail_goes_over_starttls_with_name_and_password(pair: tuple[ssl.SSLContext, Path]) -> None:
    context, ca = pair
    with smtp(context, auth=True) as (inbox, port):
        server = MailServer.of(f"smtp://ann:p%20w@localhost:{port}", "alerts@example.org", ca)
        assert await server.send(MAIL) is None
        [(envelope, mail)] = inbox.mails
        assert envelope.rcpt_tos == list(MAIL.to)
        assert (mail["From"], mail["Subject"]) == ("alerts@example.org", "It fails")
        assert mail["Message-ID"] == "<msg_7@example.org>"
        assert mail.get_content().strip() == "It fails."
        wrong = MailServer.of(f"smtp://ann:wrong@localhost:{port}", None, ca)
        told = await wrong.send(MAIL)
        assert isinstance(told, Undelivered)
        assert told.why == "the mail server refuses name or password"


async def test_a_mail_goes_over_tls_from_the_first_byte(pair: tuple[ssl.SSLContext, Path]) -> None:
    context, ca = pair
    with smtp(context, implicit=True) as (inbox, port):
        assert await MailServer.of(f"smtps://localhost:{port}", None, ca).send(MAIL) is None
        assert inbox.mails[0][1]["From"] == "trace-svc@localhost"


async def test_a_certificate_that_nobody_trusts_gets_no_mail(pair: tuple[ssl.SSLContext, Path]) -> None:
    context, _ca = pair
    with smtp(context, implicit=True) as (inbox, port):
        told = await MailServer.of(f"smtps://localhost:{port}", None, None).send(MAIL)
        assert isinstance(told, Undelivered)
        assert told.why == "the mail server cannot be reached (SSLCertVerificationError)"
        assert inbox.mails == []


async def test_a_server_without_starttls_gets_nothing_unless_the_operator_says_so() -> None:
    with smtp(None) as (inbox, port):
        told = await MailServer.of(f"smtp://localhost:{port}", None, None).send(MAIL)
        assert isinstance(told, Undelivered)
        assert "offers no STARTTLS" in told.why
        assert inbox.mails == []
        assert await MailServer.of(f"smtp://localhost:{port}?starttls=off", None, None).send(MAIL) is None
        assert len(inbox.mails) == 1


async def test_refused_addresses_do_not_keep_it_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with smtp(None) as (inbox, port):
        server = MailServer.of(f"smtp://localhost:{port}?starttls=off", None, None)
        some = MailSending(("nobody@example.org", "ann@example.org"), "s", "t", "msg_8")
        assert await server.send(some) is None
        assert inbox.mails[0][0].rcpt_tos == ["ann@example.org"]
        assert "rejected 1 of 2 recipients" in caplog.text
        told = await server.send(MailSending(("nobody@example.org",), "s", "t", "msg_9"))
        assert isinstance(told, Undelivered)
        assert told.why == "the mail server refuses every address"


@pytest.mark.parametrize("begins", [b"", b"220 hello\r\n", b"220-"])
async def test_a_server_that_says_nothing_more_is_left_at_the_deadline_and_its_thread_ends(
    begins: bytes,
) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        await stream.send_all(begins)
        with trio.move_on_after(60):
            while await stream.receive_some(1024):
                pass

    async with serving(handle) as url:
        port = int(url.rpartition(":")[2])
        server = MailServer("127.0.0.1", port, False, False, None, None, "a@b.c", timeout_s=0.3)
        before = threading.active_count()
        told = await server.send(MAIL)
        assert isinstance(told, Undelivered)
        assert told.why == "the mail server did not answer within 0.3 s"
        with trio.fail_after(60):
            while smtp_threads.borrowed_tokens > 0:
                await trio.lowlevel.checkpoint()
        assert threading.active_count() <= before + 1


async def test_without_a_mail_server_a_mail_is_not_sent() -> None:
    told = await NEAR.send(MAIL)
    assert isinstance(told, Undelivered)
    assert told.why == "no mail server is set: SVC_SMTP_URL"
