"""The operator's mail server: one connection a mail, with TLS, in a thread.

The library blocks, so it runs in a thread of which there are two at most, and whoever waits gives up at the
deadline: the connection is closed under it then, and the thread ends. Only the operator names the server, so
no rule about addresses holds.

Secrets: name and password come from the settings and stand in no text of ours.
"""

from __future__ import annotations

import logging
import smtplib
import socket
import ssl
from contextlib import suppress
from email.message import EmailMessage
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs
import trio

from protocol.alerts import MailSending, Undelivered

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 20.0
#: Of one step of the conversation.
_STEP_S: Final = 10.0
THREADS: Final = trio.CapacityLimiter(2)


@attrs.frozen(slots=False)
class MailServer:
    """Where mails go. `tls` is of the connection, `starttls` of one that begins in the clear."""

    host: str
    port: int
    tls: bool
    starttls: bool
    user: str | None
    password: str | None = attrs.field(repr=False)
    sender: str
    ca_file: Path | None = None
    timeout_s: float = TIMEOUT_S

    @classmethod
    def of(cls, url: str, sender: str | None, ca_file: Path | None) -> MailServer:
        """From `smtps://user:password@host` or `smtp://…`, which begins TLS; `?starttls=off` does not."""
        parts = urlsplit(url)
        host = parts.hostname or "localhost"
        tls = parts.scheme == "smtps"
        return cls(
            host,
            parts.port or (465 if tls else 587),
            tls,
            not tls and parts.query != "starttls=off",
            unquote(parts.username) if parts.username else None,
            unquote(parts.password) if parts.password else None,
            sender or f"trace-svc@{host}",
            ca_file,
        )

    async def send(self, mail: MailSending) -> Undelivered | None:
        """None: the server has taken it for everybody. Never raises for what the server does."""
        connections = _Held()
        why: Undelivered | None = Undelivered(f"the mail server did not answer within {self.timeout_s:g} s")
        try:
            with trio.move_on_after(self.timeout_s):
                why = await trio.to_thread.run_sync(
                    self._talk, mail, connections, abandon_on_cancel=True, limiter=THREADS
                )
        finally:
            connections.close()
        return why

    def _talk(self, mail: MailSending, connections: _Held) -> Undelivered | None:
        try:
            with self._opened(connections) as server:
                if self.starttls:
                    server.starttls(context=self._context)
                if self.user is not None:
                    self._sign_in(server, self.user)
                refusals = server.send_message(self._message(mail), self.sender, list(mail.to))
        except smtplib.SMTPAuthenticationError as error:
            return Undelivered("the mail server refuses name or password", error.smtp_code)
        except smtplib.SMTPResponseException as error:
            return Undelivered(f"the mail server refuses it ({error.smtp_code})", error.smtp_code)
        except smtplib.SMTPNotSupportedError:
            return Undelivered("the mail server offers no STARTTLS or no sign-in")
        except smtplib.SMTPRecipientsRefused:
            return Undelivered("the mail server refuses every address")
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return Undelivered(f"the mail server cannot be reached ({type(error).__name__})")
        if refusals:
            # The others have it, and sent again they would have it twice.
            log.warning("the mail server rejected %d of %d recipients", len(refusals), len(mail.to))
        return None

    def _sign_in(self, server: smtplib.SMTP, user: str) -> None:
        try:
            server.login(user, self.password or "")
        except smtplib.SMTPServerDisconnected:
            # Some end the conversation instead of saying no.
            raise smtplib.SMTPAuthenticationError(535, b"") from None

    def _opened(self, connections: _Held) -> smtplib.SMTP:
        connection = socket.create_connection((self.host, self.port), timeout=_STEP_S)
        connections.close_too(connection)
        if self.tls:
            connection = self._context.wrap_socket(connection, server_hostname=self.host)
            connections.close_too(connection)
        server = _Over(connection)
        connections.close_too(connection, server)
        server.connect(self.host, self.port)
        return server

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))

    def _message(self, mail: MailSending) -> EmailMessage:
        message = EmailMessage()
        message["From"] = self.sender
        message["To"] = ", ".join(mail.to)
        message["Subject"] = mail.subject
        message["Message-ID"] = f"<{mail.message_id}@{self.sender.rpartition('@')[2] or 'localhost'}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(mail.text)
        return message


class _Over(smtplib.SMTP):
    """A conversation over a connection that is there already."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        super().__init__(timeout=_STEP_S)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        # Named by the library, for its own kinds of connections.
        self._host = host
        return self._connection


@attrs.define(eq=False)
class _Held:
    """The conversation of a thread, to be ended under it. Both verbs may come first."""

    _server: smtplib.SMTP | None = None
    _connection: socket.socket | None = None
    _closed: bool = False

    def close_too(self, connection: socket.socket, server: smtplib.SMTP | None = None) -> None:
        """Close this when the time has come."""
        self._connection, self._server = connection, server
        if self._closed:
            self.close()

    def close(self) -> None:
        """Whoever reads from it or writes to it ends."""
        self._closed = True
        connection = self._connection if self._server is None else self._server.sock or self._connection
        if connection is not None:
            with suppress(OSError):
                # Of the socket itself: that of TLS would take its session from whoever reads.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
