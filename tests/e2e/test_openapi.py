"""`/openapi.json` and the real service agree: whoever calls, no 500, no undocumented status, no other shape.

Requests are generated from the document by schemathesis, for a signed-in owner and for each kind of key,
valid ones and broken ones, the same ones in each run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import attrs
import httpx2
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from protocol.rest.answers import Buckets, Counted, FoundPage, Ranked
from tests.examples import at_length, first_always
from tests.service import PLAIN, Service, running
from tests.wire import request, span

PASSWORD = "correct horse battery"
PLACES = {"orgSlug": "default", "projectSlug": "default"}
#: What would take the ground away from under the other requests gets names that do not exist.
UNSETTLING = {("DELETE", "/api/orgs/{orgSlug}/projects/{projectSlug}")}
#: What may end the caller's session, who then signs in anew.
SIGNING_OUT = {"/auth/logout", "/auth/sessions", "/auth/sessions/{sessionId}", "/auth/password"}


@attrs.define(eq=False)
class Api:
    """A running service, its document, and the credentials of each kind of caller."""

    service: Service
    document: dict[str, Any]
    keys: dict[str, str]

    def headers(self, caller: str) -> dict[str, str]:
        """What this caller sends. The owner signs in anew."""
        if caller in self.keys:
            return {"Authorization": f"Bearer {self.keys[caller]}"}
        body = {"email": "owner@example.org", "password": PASSWORD}
        answer = httpx2.post(f"{self.service.url}/auth/login", json=body, timeout=30, **PLAIN)
        assert answer.status_code == 200, answer.text
        return {
            "Cookie": f"svc_session={answer.cookies['svc_session']}",
            "Origin": self.service.url,
        }


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running(SVC_AUTH_TRIES_PER_ADDRESS="0", SVC_AUTH_TRIES_PER_ACCOUNT="0") as service:
        body = {"email": "owner@example.org", "password": PASSWORD}
        assert httpx2.post(f"{service.url}/auth/signup", json=body, timeout=30, **PLAIN).status_code == 201
        document = httpx2.get(f"{service.url}/openapi.json", timeout=30, **PLAIN).json()
        admin = service.command("keys", "create", "--scope", "admin", "--name", "admin").strip()
        yield Api(service, document, {"write": service.write_key, "query": service.query_key, "admin": admin})


def test_everything_served_is_described_and_everything_described_is_served(api: Api) -> None:
    assert api.document["openapi"] == "3.1.0"
    for path in ("/v1/traces", "/v1/query/count", "/auth/me", "/actuator/health"):
        assert path in api.document["paths"]
    for path, operations in api.document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"].endswith("."), (method, path)
            url = api.service.url + path.replace("{orgSlug}", "no-such-org")
            answer = httpx2.request(method, url, timeout=30, **PLAIN)
            assert answer.status_code != 405, (method, path)


@attrs.define
class Made:
    """Requests of one operation: those that follow the document, and broken ones."""

    operation: Any
    good: list[Any]
    bad: list[Any]


def how_many() -> tuple[int, int]:
    """Of each operation: requests that follow the document, and broken ones."""
    return (3, 2) if at_length() else (2, 1)


@pytest.fixture(scope="module")
def made(api: Api) -> list[Made]:
    """Requests of every operation, made once for all callers: making them takes longer than sending them."""
    schema = schemathesis.openapi.from_dict(api.document)
    schema.config.update(base_url=api.service.url)
    operations = [found.ok() for found in schema.get_all_operations()]
    good, bad = how_many()
    return [
        Made(one, _cases(one, GenerationMode.POSITIVE, good), _cases(one, GenerationMode.NEGATIVE, bad))
        for one in operations
    ]


@pytest.mark.parametrize("caller", first_always(["owner", "admin", "query", "write"]))
def test_no_caller_meets_a_500_or_an_undocumented_answer(api: Api, made: list[Made], caller: str) -> None:
    asked, headers = 0, api.headers(caller)
    for one in made:
        send = _sender(api, one.operation, headers)
        good, bad = how_many() if caller == "owner" else (2, 1)
        for case in (*one.good[:good], *one.bad[:bad]):
            asked += 1
            send(case)
        if one.operation.path in SIGNING_OUT:
            headers = api.headers(caller)
    assert asked > 100


def test_the_trap_works(api: Api) -> None:
    lying = deepcopy(api.document)
    del lying["paths"]["/auth/me"]["get"]["responses"]["401"]
    lying["components"]["schemas"]["Mode"]["required"].append("surprise")
    schema = schemathesis.openapi.from_dict(lying)
    schema.config.update(base_url=api.service.url)
    for path, text in (("/auth/me", "Undocumented status code"), ("/auth/mode", "surprise")):
        operation = schema[path]["GET"]
        with pytest.raises(BaseException, match=text):
            _sender(api, operation, {})(_cases(operation, GenerationMode.POSITIVE, 1)[0])


def test_answers_of_the_query_api_are_what_the_document_says(api: Api) -> None:
    service = api.service
    start = int(time.time()) * 10**9
    assert service.send(request(span(start_ns=start, name="x")).SerializeToString()).status_code == 200
    service.wait_for_spans(1)
    day = {"from": "2026-01-01", "to": "2026-01-02"}
    for route, body, type_ in (
        ("count", {"dataset": "spans"}, Counted),
        ("count", {"dataset": "metric_rollups"}, Counted),
        ("timeseries", {"dataset": "spans", "interval": "hour", "range": day}, Buckets),
        ("facets", {"dataset": "spans", "field": "model_id"}, Ranked),
        ("search", {"dataset": "spans"}, FoundPage),
    ):
        answer = service.ask(route, body)
        assert msgspec.to_builtins(msgspec.convert(answer, type_)) == answer


def _cases(operation: Any, mode: GenerationMode, examples: int) -> list[Any]:
    made = []

    @hypothesis_settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def each(case: Any) -> None:
        made.append(case)

    if mode is GenerationMode.NEGATIVE:
        # A request without any input cannot be broken.
        with suppress(Unsatisfiable):
            each()
    else:
        each()
    return made


def _sender(api: Api, operation: Any, headers: dict[str, str]) -> Callable[[Any], None]:
    unsettling = (operation.method.upper(), operation.path) in UNSETTLING

    def send(case: Any) -> None:
        for name, value in PLACES.items():
            if name in (case.path_parameters or {}) and not unsettling:
                case.path_parameters[name] = value
        case.call_and_validate(
            headers=headers,
            timeout=30,
            checks=[
                schemathesis.checks.not_a_server_error,
                *schemathesis.checks.CHECKS.get_by_names(
                    [
                        "status_code_conformance",
                        "content_type_conformance",
                        "response_schema_conformance",
                    ]
                ),
            ],
        )

    return send
