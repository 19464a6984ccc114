"""Laws of the model that nobody named: it is on the provider's own list, or the choice is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest

from protocol.running import Credential
from svc.outside.addresses import LOCAL_NETWORKS, AddressRule
from svc.outside.models.aws import CloudKeys
from svc.outside.models.listing import CLOUD_PATH
from svc.outside.models.provider import Surrounding
from tests.runner.running import Place, answer, ended, looks_then, request, runner
from tests.runner.standin_model import Reply, StandIn, standin
from tests.service import Service

LOCAL = AddressRule(LOCAL_NETWORKS)
VENDOR: dict[str, Any] = {"way": "first_party_api", "api_key": "sk-standin"}
CLOUD: dict[str, Any] = {"region": "eu-central-1", "keys": CloudKeys("AKIDEXAMPLE", "secret of the test")}
BEARER: dict[str, Any] = {"way": "cloud_bearer_key", "region": "eu-central-1", "bearer_key": "of the test"}


def profile(id_: str, day: str, status: str = "ACTIVE") -> dict[str, str]:
    return {"inferenceProfileId": id_, "createdAt": f"{day}T00:00:00Z", "status": status}


PROFILES = {
    "inferenceProfileSummaries": [
        profile("eu.anthropic.claude-sonnet-4-7-v1:0", "2026-09-01"),
        profile("global.anthropic.claude-sonnet-4-5-20250929-v1:0", "2025-09-29"),
        profile("global.anthropic.claude-sonnet-4-6", "2026-02-17"),
        profile("global.anthropic.claude-sonnet-5", "2026-10-01", "INACTIVE"),
        profile("global.anthropic.claude-opus-9", "2026-11-01"),
        profile("eu.amazon.nova-sonnet", "2026-11-02"),
    ]
}
REGIONAL = {"inferenceProfileSummaries": PROFILES["inferenceProfileSummaries"][:1]}


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "listed").strip()
    return Place(f"{service.url}/mcp", token)


@pytest.fixture
def model() -> Iterator[StandIn]:
    with standin(looks_then(lambda _: answer())) as found:
        yield found


async def ran(model: StandIn, place: Place, known: dict[str, Any]) -> Any:
    around = Surrounding(rule=LOCAL, base_url=model.url, **known)
    async with runner(around) as client:
        wanted = request(model, place.url, place.token, credential=Credential(), model=None)
        return (await ended(client, "run.1", wanted))[0]


@pytest.mark.parametrize(
    ("known", "listed", "asked"),
    [
        (VENDOR, None, "claude-sonnet-4-6"),
        (CLOUD, PROFILES, "global.anthropic.claude-sonnet-4-6"),
        (BEARER, PROFILES, "global.anthropic.claude-sonnet-4-6"),
        (CLOUD, REGIONAL, "eu.anthropic.claude-sonnet-4-7-v1:0"),
    ],
    ids=["vendor", "signed", "bearer", "no model of all regions"],
)
async def test_without_a_name_the_newest_that_the_provider_lists_is_asked(
    known: dict[str, Any], listed: Any, asked: str, model: StandIn, place: Place
) -> None:
    if listed is not None:
        model.models = Reply(raw=json.dumps(listed).encode())
    result = await ran(model, place, known)
    assert (result.state, result.model) == ("done", asked)
    ((path, headers),) = model.lists
    if known is VENDOR:
        assert (path, headers["x-api-key"]) == ("/v1/models?limit=1000", "sk-standin")
        assert {one.body["model"] for one in model.asked} == {asked}
    else:
        assert path == CLOUD_PATH
        wanted = "Bearer of the test" if known is BEARER else "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"
        assert headers["authorization"].startswith(wanted)
        assert {one.path for one in model.asked} == {f"/model/{asked.replace(':', '%3A')}/invoke"}


@pytest.mark.parametrize(
    ("models", "kind"),
    [
        (Reply(raw=b'{"data": []}'), "no_such_model"),
        (Reply(raw=b'{"data": [{"id": "somebody-elses"}]}'), "no_such_model"),
        (Reply(raw=b"<html>"), "no_such_model"),
        (Reply(status=404), "no_such_model"),
        (Reply(status=401), "rejected_credential"),
        (Reply(status=503), "provider_away"),
    ],
)
async def test_where_the_list_has_none_the_choice_is_asked_for(
    models: Reply, kind: str, model: StandIn, place: Place
) -> None:
    model.models = models
    result = await ran(model, place, VENDOR)
    assert result.failure is not None
    assert result.failure.kind == kind
    assert model.asked == []
    if kind == "no_such_model" and models.status == 200:
        assert "AGENT_MODEL" in result.failure.detail


async def test_whoever_names_a_model_is_asked_for_no_list(model: StandIn, place: Place) -> None:
    result = await ran(model, place, {**VENDOR, "model": "claude-of-mine"})
    assert (result.model, model.lists) == ("claude-of-mine", [])


def test_the_list_is_asked_for_as_the_clouds_own_library_does() -> None:
    service = botocore.session.get_session().get_service_model("bedrock")
    operation = service.operation_model("ListInferenceProfiles")
    path, _, query = CLOUD_PATH.partition("?")
    assert (operation.http["method"], operation.http["requestUri"]) == ("GET", path)
    names = {shape.serialization["name"] for shape in operation.input_shape.members.values()}
    assert {pair.partition("=")[0] for pair in query.split("&")} <= names
    (rows,) = PROFILES
    listed = operation.output_shape.members[rows].member.members
    assert PROFILES[rows][0].keys() <= listed.keys()
    assert service.signing_name == "bedrock"
