"""Laws of a model's bounds: what it reads at once and how much it may say are settings, and kept."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from protocol.agents import RunLimits
from protocol.running import Credential
from svc.outside.addresses import LOCAL_NETWORKS, AddressRule
from svc.outside.models.provider import Surrounding
from tests.runner.running import Place, answer, ended, kinds, request, runner
from tests.runner.standin_model import Asked, Reply, calls, standin
from tests.service import Service

#: What words of ours have, in bytes a token, as models count them.
TOKEN_BYTES = 3


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "bounds").strip()
    return Place(f"{service.url}/mcp", token)


def bounded(context: int) -> Any:
    """A model that reads all it can get, and no more at once than it can hold."""

    def script(asked: Asked) -> Reply:
        bound = asked.body.get("max_tokens") or asked.body["max_completion_tokens"]
        read = len(json.dumps(asked.body)) // TOKEN_BYTES
        if read + bound > context:
            return Reply(status=400, raw=b'{"error": {"message": "the context is exceeded"}}')
        if asked.forced:
            return calls(("submit_answer", answer()), input_tokens=read)
        return calls(("describe_dataset", {}), ("list_failure_modes", {}), input_tokens=read)

    return script


@pytest.mark.parametrize("context", [32_000, 64_000])
async def test_a_model_is_never_asked_for_more_than_it_holds(context: int, place: Place) -> None:
    with standin(bounded(context)) as model:
        async with runner() as client:
            wanted = request(
                model,
                place.url,
                place.token,
                credential=Credential("openai_compatible", model.url),
                limits=RunLimits(60.0, 200, 10**8, 999.0, 4_000, context),
            )
            result, events = await ended(client, "run.1", wanted)
        asked = model.asked
    assert result.state == "done", result
    assert "wrapping_up" in kinds(events)
    # It had read what it could: the room was used, and results that did not fit were cut.
    assert max(len(json.dumps(one.body)) for one in asked) > context
    assert len(asked) > 2


async def test_the_bounds_of_the_runners_own_model_are_those_of_its_environment(place: Place) -> None:
    around = Surrounding(
        way="first_party_api",
        model="m",
        api_key="sk-standin",
        output_tokens=4_000,
        context_tokens=32_000,
        rule=AddressRule(LOCAL_NETWORKS),
    )
    with standin(bounded(32_000)) as model:
        async with runner(attrs.evolve(around, base_url=model.url)) as client:
            limits = RunLimits(60.0, 200, 10**8, 999.0)
            wanted = request(
                model, place.url, place.token, credential=Credential(), model=None, limits=limits
            )
            result, _ = await ended(client, "run.1", wanted)
        assert {one.body["max_tokens"] for one in model.asked} == {4_000}
    assert result.state == "done", result


@pytest.mark.parametrize("provider", ["anthropic", "openai_compatible"])
async def test_an_answer_that_was_cut_is_said_to_be_and_counts_when_it_is_whole(
    provider: Any, place: Place
) -> None:
    half: Any = {"verdict": "positive"} if provider == "anthropic" else '{"verdict": "posi'

    def script(asked: Asked) -> Reply:
        match asked.turn:
            case 1:
                return calls(("query_count", {"dataset": "spans"}), ("get_span", {}), cut=True)
            case 2:
                return Reply(text="I think that", cut=True)
            case 3:
                return calls(("submit_answer", half), cut=True)
        return calls(("submit_answer", answer()), cut=True)

    with standin(script) as model:
        async with runner() as client:
            credential = Credential(provider, model.url, secret="sk-standin")
            result, events = await ended(
                client, "run.1", request(model, place.url, place.token, credential=credential)
            )
        asked = model.asked
    assert result.state == "done", result
    assert [event["tokens"] for event in events if event["kind"] == "cut"] == [2_000] * 4
    # What was complete was done, what was not is told to be short.
    first, second = asked[1].results
    assert first.startswith("[q1]")
    told = "your answer was cut at 2000 tokens, before this call was complete: be shorter"
    assert second == told
    assert "Your answer was cut at 2000 tokens. Call a tool" in json.dumps(asked[2].body)
    assert asked[3].results[-1] == told


async def test_a_model_that_is_always_cut_fails_with_the_bound_that_cuts_it(place: Place) -> None:
    with standin(lambda _: calls(("submit_answer", {"verdict": "positive"}), cut=True)) as model:
        async with runner() as client:
            result, _ = await ended(client, "run.1", request(model, place.url, place.token))
    assert result.failure is not None
    assert result.failure.kind == "bad_output"
    assert result.failure.detail == "3 answers were refused, 3 cut at the model's bound of 2000 tokens"
