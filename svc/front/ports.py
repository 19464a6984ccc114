"""What the front needs of rooms that it does not know, and is handed by the wiring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from protocol.alerts import AlertChannel, AlertMessage, RuleKind, Undelivered
from protocol.refusals import Refusal
from protocol.rest.settings import Reached
from protocol.sealed import Lost
from protocol.sign_on import Attempt, Identity
from protocol.storage import Batch, Written

# Commands know the ports too, and have no door: it costs 0.5 s of CPU to import.
if TYPE_CHECKING:
    from quart import Response
    from quart_trio import QuartTrio
    from werkzeug.exceptions import HTTPException


class Seals(Protocol):
    """Seals secrets that are stored, and opens them. A value opens for the purpose it was sealed for only."""

    def seal(self, text: str, purpose: str) -> str: ...

    def open(self, sealed: str, purpose: str) -> str | Lost: ...

    def opens(self, sealed: str) -> bool: ...


class ClientDocuments(Protocol):
    """Reads what an application publishes about itself."""

    async def read(self, url: str) -> bytes | None:
        """The document at an address, None where there is none to be had."""
        ...


class Reach(Protocol):
    """The model providers and Git hosts that an integration can name, and asking one whether it is there."""

    @property
    def providers(self) -> Mapping[str, Mapping[str, str | None]]:
        """By kind and name; the usual base address of each, with `{region}` where it has one, None where it
        must be given.
        """
        ...

    async def ask(
        self,
        kind: str,
        provider: str,
        base_url: str | None,
        secret: str | None,
        *,
        username: str | None = None,
        region: str | None = None,
    ) -> Reached: ...


class AlertDoor(Protocol):
    """Sending an alert now, and what rules can be watched by this process."""

    @property
    def mails(self) -> bool:
        """Whether a mail server is set."""
        ...

    async def try_channel(
        self, channel: AlertChannel, message: AlertMessage, delivery_id: UUID
    ) -> int | Undelivered | None: ...

    def unwatched(self, kind: RuleKind) -> str | None:
        """Why rules of this kind see nothing here; None: they are watched."""
        ...


class InvitationMail(Protocol):
    """Mails with the links of invitations."""

    async def can_send(self) -> bool:
        """Whether mail can be sent here. Raises `Outage`."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Links mailed, failed and refused, for metrics."""
        ...

    def ask(self, email_key: str) -> None:
        """Mail the link to an address if it is invited, some time soon."""
        ...


class RunnerPresence(Protocol):
    """Whether anybody has started a runner for agents."""

    async def absent(self) -> str | None:
        """Where none answers, and none has since the start of this process; None: runs can be asked for."""
        ...


class SignOn(Protocol):
    """An external identity provider. Both raise `Outage` and `SsoFailed`."""

    async def authorization_url(self, attempt: Attempt) -> str: ...

    async def identity(self, attempt: Attempt, code: str) -> Identity: ...


class Replays(Protocol):
    """What dealing with dead letters needs of the process that took them."""

    @property
    def broker(self) -> bool:
        """Whether letters lie in a broker until they are fetched."""
        ...

    async def write(self, batch: Batch) -> Written:
        """Store a batch as the drainers do. Raises what they meet."""
        ...

    def unburied(self, spans: int) -> None:
        """So many spans lie among the dead letters no more."""
        ...

    async def bring_home(self) -> int:
        """Fetch letters from the broker, if there is one; how many there were. Raises `Outage`."""
        ...


class Pages(Protocol):
    """The web pages, served beside the REST API; they say themselves what is wrong with their paths."""

    def register(self, app: QuartTrio) -> None: ...

    def owns(self, path: str) -> bool: ...

    async def astray(self, error: HTTPException) -> Response: ...

    async def refused(self, refusal: Refusal) -> Response: ...
