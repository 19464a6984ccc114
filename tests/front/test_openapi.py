"""The document is made from what serves: nothing that the application answers is missing from it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from svc.front.api.table import ROUTES
from svc.front.openapi import document
from svc.store.postgres.database import Database
from tests.front.people import replica

DESCRIBED = msgspec.json.decode(document(ROUTES))


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in DESCRIBED["paths"].items()
        for method, operation in methods.items()
    ]


async def test_every_route_of_the_application_is_described(store: Database) -> None:
    async with replica(store) as api:
        served = {
            (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
            for rule in api.app.url_map.iter_rules()
            for method in rule.methods - {"HEAD", "OPTIONS"}
            if rule.rule.startswith(("/api/", "/auth/", "/v1/", "/actuator/"))
        }
        answer = await api.browser().get("/openapi.json")
    # Ingest does not go through the application (see `svc/front/server/door.py`).
    assert served == {(path, method) for path, method, _ in operations()} - {("/v1/traces", "post")}
    assert answer.status == 200
    assert answer.body["openapi"] == "3.1.0"


def test_every_operation_has_a_name_of_its_own_and_a_sentence() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    for path, method, operation in operations():
        assert re.fullmatch(r"[A-Z].*\.", operation["summary"]), (path, method)


def test_every_reference_leads_somewhere_and_has_a_plain_name() -> None:
    for name in re.findall(r"#/components/schemas/([^']+)", str(DESCRIBED)):
        assert name in DESCRIBED["components"]["schemas"]
        assert re.fullmatch(r"[A-Za-z]+", name), "two classes have the same name"


def test_every_protected_operation_documents_its_401_and_403() -> None:
    for path, method, operation in operations():
        if operation["security"]:
            assert {"401", "403"} <= operation["responses"].keys(), (path, method)
