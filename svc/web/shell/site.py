"""Serves the table of pages: who may see one, how it is shown, and what is shown in its place.

Ordering of a request: the checks of `svc.front.auth.calls`, then the form, then the handler, then the frame.
A page that cannot be shown is a page that says why: sign in and come back (401), the role that is needed
(403), what is missing (404), the store that is away (503). Never a bare error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, cast
from urllib.parse import parse_qsl, quote

import attrs
import msgspec
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from protocol.refusals import (
    API_UNAUTHORIZED,
    BAD_REQUEST,
    INTERNAL,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    UNAVAILABLE,
    UNREAD_BODIES,
    Refusal,
    Refused,
)
from protocol.storage import Outage, StoreRefused
from svc.front.auth.callers import NOBODY
from svc.front.auth.calls import Call, Context, admit, lowered
from svc.front.auth.client import Client
from svc.web.shell.frame import frame_of
from svc.web.shell.page import PROJECT, Download, Go, Html, PageRoute, Sent, Visit
from svc.web.shell.preferences import LAST_COOKIE, Preferences, preference_cookie
from svc.web.shell.process_view import ProcessView
from svc.web.shell.render import Asked, Renderer

log = logging.getLogger(__name__)

#: Beside the paths under `/orgs/`, where a wrong path is a page too.
_OURS: Final = "/orgs/"
#: What a fragment is asked for with; its refusal is a fragment too.
PART_HEADER: Final = "x-part"
_FORM_FIELDS: Final = 200


@attrs.define(eq=False)
class Site:
    """The pages of one process."""

    means: Context
    process_view: ProcessView
    pages: tuple[PageRoute, ...]
    renderer: Renderer
    #: The page for whoever sends a form of ours after their session has ended, by its address and body.
    signed_out: Callable[[Call[None], str, bytes], Awaitable[Html]]
    #: Since when the store has not answered a page.
    _away_since: datetime | None = None

    def register(self, app: QuartTrio) -> None:
        """Put every page and the static files into the application."""
        for page in self.pages:
            app.add_url_rule(
                re.sub(r"{(\w+)}", r"<\1>", page.path),
                f"page {page.method} {page.path}",
                self._view(page),
                methods=[page.method],
            )
        app.add_url_rule("/static/<digest>/<path:name>", "static files", self._static, methods=["GET"])

    def owns(self, path: str) -> bool:
        """Whether what is wrong with a path is said on a page."""
        return path.startswith(_OURS) or path in {page.path for page in self.pages}

    async def astray(self, error: HTTPException) -> Response:
        """The page for a wrong path or method among ours."""
        refusal = NOT_FOUND if error.code == 404 else BAD_REQUEST
        if error.code == 405:
            refusal = METHOD_NOT_ALLOWED
        path = {}
        match = re.match(r"/orgs/([^/]+)/projects/([^/]+)(?:/|$)", request.path)
        if match:
            path = {"orgSlug": match[1], "projectSlug": match[2]}
        page = PageRoute("GET", PROJECT if path else "/", "ORG_VIEW" if path else "PUBLIC", _missing(refusal))
        return await self._answered(page, path)

    async def refused(self, refusal: Refusal) -> Response:
        """The page for a request that is refused whoever sends it."""
        return await self._answered(PageRoute("GET", "/", "PUBLIC", _missing(refusal)), {})

    def _view(self, page: PageRoute) -> Callable[..., Awaitable[Response]]:
        async def view(**path: str) -> Response:
            return await self._answered(page, path)

        return view

    async def _answered(self, page: PageRoute, path: dict[str, str]) -> Response:
        headers = lowered(request.headers)
        negotiation, preferences = Asked.of(headers), Preferences.of(headers)
        visit: Visit | None = None
        try:
            client = self.means.surroundings.client(request.remote_addr, request.scheme, headers)
            call = await admit(self.means, page.rule, client, headers, path)
            if isinstance(call, Refusal):
                if call is API_UNAUTHORIZED and page.form is not None and PART_HEADER not in headers:
                    return await self._signed_out(client, headers, negotiation, preferences)
                return await self._refused(call, None, negotiation, preferences)
            visit = await self._visit(page, call, preferences)
            answer = await page.handler(visit)
            if isinstance(answer, Refusal):
                return await self._refused(answer, visit, negotiation, preferences)
            if isinstance(answer, Go):
                return self.renderer.gone(answer)
            if isinstance(answer, Sent):
                return await self.renderer.sent(answer, negotiation)
            if isinstance(answer, Download):
                return self.renderer.download(answer)
            response = await self._page(answer, visit, negotiation, preferences)
            self._away_since = None
            return response
        except Refused as refused:
            return await self._refused(refused.refusal, visit, negotiation, preferences)
        except Outage:
            self._away_since = self._away_since or self.means.now()
            return await self._refused(UNAVAILABLE, None, negotiation, preferences)
        except StoreRefused:
            # Such as U+0000, which PostgreSQL keeps in no text.
            return await self._refused(BAD_REQUEST, None, negotiation, preferences)
        except HTTPException as error:
            # The form is larger than any of ours, or did not come in time.
            refusal = UNREAD_BODIES.get(error.code or 0, BAD_REQUEST)
            return await self._refused(refusal, None, negotiation, preferences)
        except Exception as error:
            log.exception("a page at %s failed", request.path, exc_info=error)
            return await self._refused(INTERNAL, None, negotiation, preferences)

    async def _visit(self, page: PageRoute, call: Call[None], preferences: Preferences) -> Visit:
        form = None
        if page.form is not None:
            form = _read_form(cast(bytes, await request.get_data(cache=False)), page.form)
        return Visit(call, request.args.to_dict(), preferences, self.process_view, self._address(), form)

    async def _signed_out(
        self, client: Client, headers: Mapping[str, str], negotiation: Asked, preferences: Preferences
    ) -> Response:
        """Ask to sign in, and keep what was typed; not what a page of somebody else sends."""
        if not self.means.surroundings.is_ours(headers, client):
            return await self._refused(API_UNAUTHORIZED, None, negotiation, preferences)
        call = Call(self.means, NOBODY, client, headers, {}, None)
        body = cast(bytes, await request.get_data(cache=False))
        answer = await self.signed_out(call, self._address(), body)
        return await self.renderer.shown(answer, self._context(preferences, answer), negotiation)

    @staticmethod
    def _address() -> str:
        query = request.query_string.decode("latin-1")
        return request.path + (f"?{query}" if query else "")

    async def _page(
        self, answer: Html, visit: Visit, negotiation: Asked, preferences: Preferences
    ) -> Response:
        context = self._context(preferences, answer)
        cookies = answer.cookies
        if not answer.part and visit.call.maybe_project is not None:
            context["frame"] = await frame_of(visit, self._places())
            context["base"] = visit.base
            project_path = f"{visit.org.slug}/{visit.project.slug}"
            if (
                preferences.last != (visit.org.slug, visit.project.slug)
                and "sec-purpose" not in visit.call.headers
            ):
                cookies = (*cookies, preference_cookie(LAST_COOKIE, project_path))
        elif answer.part and visit.call.maybe_project is not None:
            context["base"] = visit.base
        context["visit"] = visit
        return await self.renderer.shown(attrs.evolve(answer, cookies=cookies), context, negotiation)

    def _places(self) -> frozenset[str]:
        below = PROJECT + "/"
        return frozenset(page.path.removeprefix(below) for page in self.pages if page.path.startswith(below))

    def _context(self, preferences: Preferences, answer: Html) -> dict[str, Any]:
        return {
            "preferences": preferences,
            "zone": preferences.zone,
            "now": self.means.now(),
            "frame": None,
            "single_user": self.means.callers.disabled,
        }

    async def _refused(
        self, refusal: Refusal, visit: Visit | None, negotiation: Asked, preferences: Preferences
    ) -> Response:
        part = PART_HEADER in request.headers
        if refusal is API_UNAUTHORIZED and not part and request.method == "GET":
            back = quote(self._address(), safe="/")
            return self.renderer.gone(Go("/login" if back == "/" else f"/login?next={back}"))
        context = {"refusal": refusal, "path": request.path, "away_since": None}
        if refusal is UNAVAILABLE:
            context["away_since"] = self._away_since or self.means.now()
        answer = Html(
            "shell/refused_part" if part else "shell/refused",
            context,
            status=refusal.status,
            part=part,
            retry_after_s=refusal.retry_after_s,
        )
        if visit is not None and visit.call.maybe_project is not None and not part:
            try:
                return await self._page(answer, visit, negotiation, preferences)
            except Outage:
                pass
        return await self.renderer.shown(answer, self._context(preferences, answer), negotiation)

    async def _static(self, digest: str, name: str) -> Response:
        response = self.renderer.asset(digest, name, Asked.of(lowered(request.headers)))
        if response is None:
            raise Refused(NOT_FOUND)
        return response


def _missing(refusal: Refusal) -> Callable[[Visit], Awaitable[Refusal]]:
    async def missing(_visit: Visit) -> Refusal:
        return refusal

    return missing


def _read_form(body: bytes, type_: type[msgspec.Struct]) -> msgspec.Struct:
    """The fields of a form as their class. Raises `Refused`, quoting no value."""
    try:
        lists = {field.name for field in msgspec.structs.fields(type_) if field.type == list[str]}
        fields: dict[str, Any] = {}
        for name, value in parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=_FORM_FIELDS,
        ):
            # Boxes of one name are several values; of anything else the last counts.
            fields[name] = [*fields.get(name, ()), value] if name in lists else value
        return msgspec.convert(fields, type_, strict=False)
    except (ValueError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, msgspec.ValidationError) else "it is no form"
        raise Refused(BAD_REQUEST.saying(f"the form cannot be read: {why}"[:500])) from None
