"""One row of the table of pages: what its handler is given, and what it may answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import attrs
import msgspec

from protocol.refusals import API_UNAUTHORIZED
from svc.domain.accounts.access import OrgRole, Permission, may
from svc.front.auth.callers import Person
from svc.front.auth.calls import Call, Context, Rule
from svc.front.auth.client import public_address
from svc.store.accounts.projects import Org, Project
from svc.web.shell.preferences import Preferences
from svc.web.shell.process_view import ProcessView

#: Path prefixes of pages.
ORG: Final = "/orgs/{orgSlug}"
PROJECT: Final = ORG + "/projects/{projectSlug}"


@attrs.frozen
class Visit:
    """One request for a page, by somebody who may see it."""

    call: Call[Any]
    #: The parameters behind the question mark; of several of a name the first.
    query: Mapping[str, str]
    preferences: Preferences
    process_view: ProcessView
    #: Path and query, as they were asked for.
    address: str
    form: Any = None

    @property
    def means(self) -> Context:
        """What handlers call inwards."""
        return self.call.means

    @property
    def org(self) -> Org:
        """The organization of the path."""
        return self.call.org

    @property
    def project(self) -> Project:
        """The project of the path."""
        return self.call.project

    @property
    def base(self) -> str:
        """The path of the project's pages."""
        return f"/orgs/{self.org.slug}/projects/{self.project.slug}"

    @property
    def origin(self) -> str:
        """How whoever made this request reaches the service, without a slash at its end."""
        call = self.call
        return public_address(
            call.means.landing, call.means.surroundings.base_path, call.headers, call.client
        )

    @property
    def role(self) -> OrgRole | None:
        """What the caller is in the project, or in the organization where the path names no project."""
        return self.call.role

    def number(self, name: str) -> int:
        """A number of the address, such as that of the first row; 0 where it is none."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 7 else 0

    def has(self, etag: str) -> bool:
        """Whether the browser has the document that bears this tag."""
        return etag in self.call.headers.get("if-none-match", "")

    @property
    def manages(self) -> bool:
        """Whether the caller may change things of a project."""
        return self.role is not None and may(self.role, "ORG_MANAGE")

    @property
    def administers(self) -> bool:
        """Whether the caller may change things of the organization."""
        return self.role is not None and may(self.role, "ORG_ADMIN")

    @property
    def sees_org(self) -> bool:
        """Whether the caller sees what is the organization's; roles in projects alone show none of it."""
        return self.call.org_role is not None and may(self.call.org_role, "ORG_VIEW")

    @property
    def manages_org(self) -> bool:
        """Whether the caller may make projects."""
        return self.call.org_role is not None and may(self.call.org_role, "ORG_MANAGE")

    @property
    def email(self) -> str | None:
        """The address of who is signed in; None in single-user mode."""
        return self.call.caller.login.email if isinstance(self.call.caller, Person) else None


@attrs.frozen
class Html:
    """A template with its context. `part`: a fragment, without the frame. `secret`: it is stored nowhere."""

    template: str
    context: Mapping[str, Any] = attrs.field(factory=dict)
    status: int = 200
    cookies: tuple[str, ...] = ()
    part: bool = False
    secret: bool = False
    retry_after_s: int | None = None
    #: Sources beside our own that the policy lets its forms lead to, blank for none.
    form_targets: str = ""


@attrs.frozen
class Go:
    """See another address (303): ours, or the one that an application registered."""

    location: str
    cookies: tuple[str, ...] = ()


#: The type of a download that is no text.
BYTES: Final = "application/octet-stream"


@attrs.frozen
class Sent:
    """A document that is no page: JSON for a module, a picture, or a download when it has a file name.

    `etag` names it where that is known without its body, which is then not needed when the browser has it.
    """

    body: bytes = attrs.field(repr=False)
    content_type: str = "application/json"
    file_name: str | None = None
    secret: bool = False
    etag: str | None = None


@attrs.frozen
class Download:
    """A file that is sent piece by piece, within so many seconds. It is text and is never opened here."""

    pieces: AsyncIterator[bytes] = attrs.field(repr=False)
    file_name: str
    timeout_s: float


Handler = Callable[[Visit], Awaitable[Any]]


@attrs.frozen
class PageRoute:
    """One row of the table. A POST has a form; a GET changes nothing."""

    method: Literal["GET", "POST"]
    path: str
    permission: Permission
    handler: Handler
    form: type[msgspec.Struct] | None = None
    #: Whether it is about the organization although its path names a project.
    of_org: bool = False

    @property
    def rule(self) -> Rule:
        """What it asks of its caller. A page is for people: a bearer key opens none."""
        return Rule(self.permission, self.method == "GET", API_UNAUTHORIZED, page=True, of_org=self.of_org)
