"""The Quart application: query API, health, metrics, and the refusals of everything unknown.

Handlers decide and call inwards; answers leave in the envelope of contract §1. The hot ingest route is not
here (see `door`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import msgspec
import trio
from quart import Response, request
from quart.routing import QuartRule
from quart.wrappers.base import BaseRequestWebsocket
from quart_trio import QuartTrio
from quart_trio.wrappers import TrioRequest
from werkzeug.exceptions import BadHost, HTTPException, MethodNotAllowed
from werkzeug.routing import MapAdapter

from actors.keys import Grant, Keys
from protocol.refusals import (
    BAD_REQUEST,
    INTERNAL,
    METHOD_NOT_ALLOWED,
    NO_TENANT,
    NOT_FOUND,
    OTHER_SIGNALS,
    QUERY_NO_PROJECT,
    QUERY_SCOPE,
    TRACES_PATH,
    TWO_AUTHORIZATIONS,
    UNREAD_BODIES,
    Refusal,
    Refused,
    refusal_of,
)
from protocol.rest.answers import Buckets, Compared, Counted, FoundPage, Ranked
from protocol.rest.query import (
    SEARCH_LIMIT_DEFAULT,
    SEARCH_LIMIT_MAX,
    SERIES_DEFAULT,
    SERIES_MAX,
    TOP_N_DEFAULT,
    TOP_N_MAX,
    CompareBody,
    CountBody,
    FacetsBody,
    PopulationBody,
    SearchBody,
    TimeseriesBody,
    bounds,
    page_size,
    read_body,
    searched,
)
from protocol.storage import Outage, StoreRefused
from svc.front.api.routes import Api
from svc.front.auth.bearer import authorize
from svc.front.auth.calls import lowered
from svc.front.envelope import allowing, json_response, opened, refusal_response, success_response
from svc.front.feedback import FEEDBACK_PATH, FeedbackDoor
from svc.front.health import Health
from svc.front.metrics import Metrics
from svc.front.oauth import OAuthDoor
from svc.front.openapi import document
from svc.front.otlp.http import PROTOBUF, status_of
from svc.front.otlp.lately import WRONG_PATH, RefusedLately, is_stray_export, wrong_path
from svc.front.otlp.signals import RefusedSignals
from svc.front.ports import Pages
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import Question, ask
from svc.store.reads.usage.compare import CompareStore
from svc.store.reads.usage.compared_sides import Side, side_of

log = logging.getLogger(__name__)

Answer = Callable[[Grant, bytes], Awaitable[msgspec.Struct]]


@attrs.frozen
class App:
    """What the handlers call inwards."""

    keys: Keys
    queries: QueryStore
    health: Health
    metrics: Metrics
    api: Api
    pages: Pages | None = None
    #: Counts requests with other signals than traces.
    signals: RefusedSignals = attrs.field(factory=RefusedSignals)
    #: Counts exports that went to a wrong path.
    lately: RefusedLately = attrs.field(factory=lambda: RefusedLately(time.monotonic))

    @property
    def comparing(self) -> CompareStore:
        """Compares what the queries read."""
        return CompareStore(self.queries.database)

    def build(self) -> QuartTrio:
        """The application with all its routes."""
        # Neither folder is used; by itself it asks for the current one, which need not exist.
        folder = str(Path(__file__).parent)
        app = _Application("trace-svc", static_folder=None, root_path=folder, instance_path=folder)
        app.request_class = _request_class(self.api)
        app.url_rule_class = _MatchedRule
        app.config["PROPAGATE_EXCEPTIONS"] = False
        app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
        # A path with doubled slashes is unknown, not a redirect to another.
        app.url_map.merge_slashes = False
        # The answers are JSON bytes made by msgspec; sorting and pretty printing are not wanted.
        for name, answer in (
            ("count", self._count),
            ("timeseries", self._timeseries),
            ("facets", self._facets),
            ("search", self._search),
            ("compare", self._compare),
        ):
            app.add_url_rule(f"/v1/query/{name}", name, self._query_route(name, answer), methods=["POST"])
        app.add_url_rule("/actuator/health", "health", self._health, methods=["GET"])
        app.add_url_rule("/actuator/health/liveness", "liveness", self._liveness, methods=["GET"])
        app.add_url_rule("/actuator/health/readiness", "readiness", self._readiness, methods=["GET"])
        app.add_url_rule("/actuator/prometheus", "prometheus", self._prometheus, methods=["GET"])
        for method, answer_feedback in FeedbackDoor(self.keys, self.api.means).routes:
            app.add_url_rule(FEEDBACK_PATH, f"feedback {method}", answer_feedback, methods=[method])
        if self.api.means.client_documents is not None:
            for method, path, answer_oauth in OAuthDoor(self.keys, self.api.means).routes:
                app.add_url_rule(path, f"oauth {method} {path}", answer_oauth, methods=[method])
        describe = partial(document, self.api.routes, self.api.means.surroundings.base_path)

        async def openapi() -> Response:
            # Made when it is first asked for, which nobody may do; it would hold the loop.
            described = await trio.to_thread.run_sync(describe)
            return Response(described, content_type="application/json")

        app.add_url_rule("/openapi.json", "openapi", openapi, methods=["GET"])
        self.api.register(app)
        if self.pages is not None:
            self.pages.register(app)
        app.before_request(self._one_credential)
        app.register_error_handler(HTTPException, self._http_error)
        app.register_error_handler(Refused, _refused)
        app.register_error_handler(Outage, _outage)
        app.register_error_handler(StoreRefused, _unstorable)
        app.register_error_handler(Exception, _bug)
        return app

    def _query_route(self, name: str, answer: Answer) -> Callable[[], Awaitable[Response]]:
        async def route() -> Response:
            headers = lowered(request.headers)
            came_from = self.api.means.callers.place(request.remote_addr, headers)
            authorization = request.headers.get("authorization")
            grant = await authorize(
                self.keys, authorization, ("query", "admin"), QUERY_SCOPE, place=came_from
            )
            if grant is NO_TENANT and await self.api.means.callers.without_project(headers):
                grant = QUERY_NO_PROJECT
            if isinstance(grant, Refusal):
                return refusal_response(grant)
            started_s = trio.current_time()
            body = cast(bytes, await request.get_data(cache=False))
            async with self.api.means.concurrency.slot(grant.key_id):
                data = await answer(grant, body)
            self.metrics.query_s.labels(name).observe(trio.current_time() - started_s)
            return success_response(data)

        return route

    async def _count(self, grant: Grant, raw: bytes) -> Counted:
        body = read_body(raw, CountBody)
        return await self.queries.count(_question(grant, body, body.measure))

    async def _timeseries(self, grant: Grant, raw: bytes) -> Buckets:
        body = read_body(raw, TimeseriesBody)
        top_n = page_size(body.top_n, SERIES_DEFAULT, SERIES_MAX)
        question = _question(grant, body, body.measure)
        return await self.queries.timeseries(question, body.interval, body.group_by, top_n)

    async def _facets(self, grant: Grant, raw: bytes) -> Ranked:
        body = read_body(raw, FacetsBody)
        top_n = page_size(body.top_n, TOP_N_DEFAULT, TOP_N_MAX)
        question = _question(grant, body, body.measure)
        return await self.queries.facets(question, body.field, top_n, ascending=body.sort == "ascending")

    async def _search(self, grant: Grant, raw: bytes) -> FoundPage:
        body = read_body(raw, SearchBody)
        limit = page_size(body.limit, SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX)
        question = _question(grant, body)
        return await self.queries.search(question, searched(body.q), body.mode, limit, body.cursor)

    async def _compare(self, grant: Grant, raw: bytes) -> Compared:
        body = read_body(raw, CompareBody)
        return await self.comparing.compare(grant.project_id, _side(body.baseline), _side(body.comparison))

    async def _one_credential(self) -> Response | None:
        """The refusal of a request with two credentials, in the form of its door."""
        has_one = len(request.headers.getlist("authorization")) < 2
        # The doors of OAuth have a form of their own and refuse by themselves.
        if has_one or (request.endpoint or "").startswith("oauth "):
            return None
        if self.pages is not None and self.pages.owns(request.path):
            return await self.pages.refused(TWO_AUTHORIZATIONS)
        refused = refusal_response(TWO_AUTHORIZATIONS)
        return opened(refused) if request.path == FEEDBACK_PATH else refused

    async def _http_error(self, error: HTTPException) -> Response:
        if (unread := UNREAD_BODIES.get(error.code or 0)) is not None:
            refused = refusal_response(unread)
            return opened(refused) if request.path == FEEDBACK_PATH else refused
        if request.path.startswith("/api/"):
            # Nothing here is public: without a credential even an unknown path says only that.
            headers = lowered(request.headers)
            client = self.api.means.surroundings.client(request.remote_addr, request.scheme, headers)
            caller = await self.api.means.callers.who(headers, client)
            if isinstance(caller, Refusal):
                return refusal_response(caller)
        is_stray = error.code in (404, 405) and is_stray_export(request.method, lowered(request.headers))
        if is_stray:
            self.lately.note(WRONG_PATH, wrong_path(request.path))
        if (request.method, request.path) == ("POST", "/"):
            return refusal_response(TRACES_PATH)
        # Exporters read no pages, wherever they go astray.
        if self.pages is not None and not is_stray and self.pages.owns(request.path):
            return allowing(await self.pages.astray(error), error)
        if isinstance(error, MethodNotAllowed):
            return allowing(refusal_response(METHOD_NOT_ALLOWED), error)
        signal = OTHER_SIGNALS.get(request.path)
        if signal is not None:
            self.signals.note(request.path.rpartition("/")[2])
            return _refused_signal(signal)
        if error.code == 404:
            return refusal_response(
                TRACES_PATH if request.path.rstrip("/").endswith("/v1/traces") else NOT_FOUND
            )
        return refusal_response(attrs.evolve(BAD_REQUEST, status=error.code or 400))

    async def _health(self) -> Response:
        status, report = await self.health.report()
        return json_response(report, 200 if status == "UP" else 503)

    async def _liveness(self) -> Response:
        # That this line runs is the proof: the event loop turns and the door answers.
        return json_response({"status": "UP"}, 200)

    async def _readiness(self) -> Response:
        actors = self.health.actors()
        database = await self.health.db()
        status = "UP" if actors["status"] == database["status"] == "UP" else "DOWN"
        return json_response({"status": status}, 200 if status == "UP" else 503)

    async def _prometheus(self) -> Response:
        return Response(self.metrics.render(), content_type="text/plain; version=0.0.4; charset=utf-8")


def _request_class(api: Api) -> type[TrioRequest]:
    """Requests that take as much of a body as their route does."""

    class Bounded(TrioRequest):
        def __init__(self, method: str, scheme: str, path: str, *rest: Any, **named: Any) -> None:
            # Quart makes the body before it routes, with one bound for all.
            named["max_content_length"] = api.body_bytes(method, path)
            super().__init__(method, scheme, path, *rest, **named)

    return Bounded


class _Application(QuartTrio):
    """Quart, which routes by path alone, whatever a request says of its host."""

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        try:
            return super().create_url_adapter(request)
        except BadHost:
            # Such as a label of more than 63 letters. No address is built from it either.
            assert request is not None, "only requests have hosts"
            return self.url_map.bind(
                *("localhost", request.root_path, "", request.scheme, request.method, request.path),
                request.query_string.decode(),
            )


class _MatchedRule(QuartRule):
    """A route that is matched, and from which no address is ever built.

    Compiling how to build one took half of a process's start of its routes (werkzeug 3, 318 builders).
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        return _unbuilt


def _unbuilt(rule: _MatchedRule, **_values: Any) -> tuple[str, str]:
    raise AssertionError(f"addresses are written, not built from {rule.rule}")


def _question(
    grant: Grant, body: CountBody | TimeseriesBody | FacetsBody | SearchBody, measure: str | None = None
) -> Question:
    project_id, within = grant.project_id, bounds(body.range)
    return ask(project_id, body.dataset, within, body.filters, by=body.by, measure=measure)


def _side(body: PopulationBody) -> Side:
    return side_of(*bounds(body.range), body.filters, body.status, body.failed_spans)


def _refused_signal(refusal: Refusal) -> Response:
    """In the encoding of the request, as OTLP/HTTP has it: exporters read no other."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != PROTOBUF or "json" in request.headers.get("accept", "").lower():
        return refusal_response(refusal)
    return Response(status_of(refusal), status=refusal.status, content_type=PROTOBUF)


async def _refused(error: Refused) -> Response:
    return refusal_response(error.refusal)


async def _outage(error: Outage) -> Response:
    return refusal_response(refusal_of(error))


async def _unstorable(_error: StoreRefused) -> Response:
    # Such as U+0000, which PostgreSQL keeps in no text.
    return refusal_response(BAD_REQUEST.saying("the request holds a value that cannot be stored"))


async def _bug(error: Exception) -> Response:
    log.exception("a request to %s failed", request.path, exc_info=error)
    return refusal_response(INTERNAL)
