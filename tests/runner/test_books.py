"""Laws of a run's books: below its cap whatever the model does, and true whenever they are read."""

from __future__ import annotations

import threading
from typing import Any

import attrs
import pytest
import trio

from protocol.agents import RunLimits, Spent
from protocol.running import Credential, RunEvents, RunStands
from tests.runner.running import Place, answer, ended, followed, kinds, looks_then, request, runner
from tests.runner.standin_model import Asked, Reply, calls, standin
from tests.service import Service, free_port

SECRET = "sk-standin-credential"


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "books").strip()
    return Place(f"{service.url}/mcp", token)


async def test_a_run_that_never_ends_ends_below_its_cap_with_a_last_turn(place: Place) -> None:
    def endless(asked: Asked) -> Reply:
        if asked.forced:
            return calls(("submit_answer", answer()))
        return calls(("query_count", {"dataset": "spans"}), output_tokens=1_000)

    with standin(endless) as model:
        for cap in (
            RunLimits(60.0, 6, 10**6, 9.0, 1_000),
            RunLimits(60.0, 400, 120_000, 9.0, 1_000),
            RunLimits(60.0, 400, 10**6, 0.30, 1_000),
        ):
            async with runner() as client:
                wanted = request(model, place.url, place.token, limits=cap)
                result, events = await ended(client, "run.1", wanted)
            assert (result.state, result.result is not None) == ("done", True), result
            assert result.spent.turns <= cap.turns
            assert result.spent.tokens <= cap.tokens
            assert result.spent.usd is not None
            assert result.spent.usd <= cap.usd
            assert "wrapping_up" in kinds(events)


async def test_without_room_for_an_answer_the_budget_ends_it(place: Place) -> None:
    with standin(lambda _: calls(("query_count", {"dataset": "spans"}))) as model:
        async with runner() as client:
            tight = request(model, place.url, place.token, limits=RunLimits(60.0, 3, 10**6, 9.0, 1_000))
            result, _ = await ended(client, "run.1", tight)
            none = request(model, place.url, place.token, limits=RunLimits(60.0, 3, 100, 9.0, 1_000))
            nothing, _ = await ended(client, "run.2", none)
    assert result.failure is not None
    assert (result.failure.kind, result.spent.turns) == ("budget", 3)
    assert nothing.failure is not None
    assert (nothing.failure.kind, nothing.spent.turns) == ("budget", 0)


async def test_a_model_without_a_price_is_held_by_its_tokens(place: Place) -> None:
    with standin(looks_then(lambda _: answer())) as model:
        async with runner() as client:
            wanted = request(
                model,
                place.url,
                place.token,
                model="somebody's own",
                credential=Credential("openai_compatible", model.url),
                limits=RunLimits(60.0, 12, 200_000, 0.0, 1_000),
            )
            result, _ = await ended(client, "run.1", wanted)
    assert (result.state, result.spent.usd) == ("done", None)


async def test_what_comes_again_is_asked_again_and_what_was_lost_counts_at_its_worst(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc.runner.conversation_loop.RETRY_S", (0.0, 0.0, 0.0, 0.0))

    def shaky(asked: Asked) -> Reply:
        match asked.turn:
            case 1:
                return Reply(status=529, headers={"retry-after": "0"})
            case 2:
                return Reply(drop=True)
        return looks_then(lambda _: answer())(asked)

    with standin(shaky) as model:
        async with runner() as client:
            result, events = await ended(client, "run.1", request(model, place.url, place.token))
    assert result.state == "done"
    assert [event["status"] for event in events if event["kind"] == "retry"] == [529, 0]
    assert (result.spent.turns, result.spent.output) == (3, 2_000 + 2 * 50)


async def test_an_answer_that_cannot_be_read_may_have_cost_its_worst(place: Place) -> None:
    with standin(lambda _: Reply(raw=b"<html>")) as model:
        async with runner() as client:
            result, _ = await ended(client, "run.1", request(model, place.url, place.token))
    assert (result.spent.turns, result.spent.output) == (1, 2_000)


async def test_a_provider_that_was_never_reached_costs_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc.runner.conversation_loop.RETRY_S", (0.0, 0.0, 0.0, 0.0))
    with standin(looks_then(lambda _: answer())) as model:
        nobody = f"http://127.0.0.1:{free_port()}"
        # It speaks no TLS, there is no such name, nobody listens.
        for url in (model.url.replace("http:", "https:"), "http://nowhere.invalid", nobody):
            async with runner() as client:
                wanted = request(
                    model, place.url, place.token, credential=Credential("anthropic", url, secret=SECRET)
                )
                result, events = await ended(client, "run.1", wanted)
            assert result.failure is not None
            assert (result.failure.kind, result.spent) == ("provider_away", Spent())
            assert kinds(events).count("retry") == 4
        assert model.asked == []


@pytest.mark.parametrize("ends", ["cancelled", "out of time", "read now"])
async def test_a_call_under_way_is_booked_at_its_worst(ends: str, place: Place) -> None:
    gate = threading.Event()
    seconds = 1.0 if ends == "out of time" else 60.0
    with standin(lambda _: Reply(wait=gate)) as model:
        async with runner() as client:
            limits = RunLimits(seconds, 12, 200_000, 2.0, 2_000)
            wanted = request(model, place.url, place.token, limits=limits)
            assert isinstance(await client.begin("run.1", wanted), RunStands)
            after, spent = 0, Spent()
            with trio.fail_after(30):
                while not spent.turns:
                    run_events = await client.events("run.1", after)
                    assert isinstance(run_events, RunEvents)
                    after, spent = run_events.next, run_events.spent
            assert (spent.turns, spent.output) == (1, 2_000)
            assert spent.usd
            if ends == "cancelled":
                await client.cancel("run.1")
            if ends == "read now":
                gate.set()
            result, _ = await followed(client, "run.1")
            gate.set()
    if ends == "read now":
        # Then it is known, and what was held for it is free again.
        assert result.spent.output <= 3 * 50
    else:
        assert result.spent == spent


@pytest.mark.parametrize(("read", "wrote"), [(-45_000_000, -5), (45_000_000, 45_000_000)])
@pytest.mark.parametrize("provider", ["anthropic", "openai_compatible"])
async def test_what_a_provider_says_was_used_counts_within_what_the_call_could_use(
    provider: Any, read: int, wrote: int, place: Place
) -> None:
    limits = RunLimits(60.0, 12, 200_000, 2.0, 2_000)

    def lies(asked: Asked) -> Reply:
        reply = calls(("query_count", {"dataset": "spans"})) if not asked.results else None
        return attrs.evolve(
            reply or calls(("submit_answer", answer())), input_tokens=read, output_tokens=wrote
        )

    with standin(lies) as model:
        async with runner() as client:
            wanted = request(
                model,
                place.url,
                place.token,
                credential=Credential(provider, model.url, secret=SECRET),
                limits=limits,
            )
            result, _ = await ended(client, "run.1", wanted)
    spent = result.spent
    assert (result.state, spent.turns) == ("done", 2)
    assert 0 <= spent.tokens <= limits.tokens
    assert spent.output == (0 if wrote < 0 else 2 * 2_000)
    assert spent.usd is None or 0 <= spent.usd <= limits.usd
