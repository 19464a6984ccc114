"""Laws of a run: every dialect, within its budget, whatever the model does, says or fails to do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import trio

from protocol.agents import RunLimits
from protocol.running import Credential, RunnerAway, RunnerRefused, RunResult, RunStands
from svc.outside.addresses import LOCAL_NETWORKS, AddressRule
from svc.outside.models.aws import CloudKeys
from svc.outside.models.provider import Surrounding
from svc.outside.runner import RunnerClient
from tests.runner.running import (
    KEY,
    MODEL,
    Place,
    answer,
    ended,
    followed,
    kinds,
    looks_then,
    request,
    runner,
)
from tests.runner.standin_model import Asked, Reply, StandIn, calls, standin
from tests.service import Service

SECRET = "sk-standin-credential"


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "runner").strip()
    return Place(f"{service.url}/mcp", token)


@pytest.fixture
def model() -> Iterator[StandIn]:
    with standin(looks_then(lambda _: answer())) as found:
        yield found


LOCAL = AddressRule(LOCAL_NETWORKS)
WAYS: dict[str, tuple[Credential | None, dict[str, Any], str]] = {
    "anthropic": (Credential("anthropic", "{url}", secret=SECRET), {}, "/v1/messages"),
    "openai": (Credential("openai", "{url}", secret=SECRET), {}, "/chat/completions"),
    "openai_compatible": (Credential("openai_compatible", "{url}"), {}, "/chat/completions"),
    "google": (Credential("google", "{url}", secret=SECRET), {}, "/chat/completions"),
    "bedrock pair": (
        Credential("aws_bedrock", "{url}", "eu-central-1", "AKIDEXAMPLE", f"{SECRET} session"),
        {},
        f"/model/{MODEL}/invoke",
    ),
    "bedrock bearer": (
        Credential("aws_bedrock", "{url}", "eu-central-1", None, SECRET),
        {},
        f"/model/{MODEL}/invoke",
    ),
    "unset": (
        None,
        {"region": "eu-central-1", "keys": CloudKeys("AKIDEXAMPLE", SECRET)},
        "/model/a%3Ab/invoke",
    ),
    "cloud_bearer_key": (
        None,
        {"way": "cloud_bearer_key", "region": "eu-central-1", "bearer_key": SECRET},
        "/model/a%3Ab/invoke",
    ),
    "first_party_api": (None, {"way": "first_party_api", "api_key": SECRET}, "/v1/messages"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_comes_to_its_answer_by_every_way(way: str, model: StandIn, place: Place) -> None:
    credential, known, path = WAYS[way]
    around = Surrounding(rule=LOCAL, base_url=model.url, model="a:b", **known)
    fields: dict[str, Any] = {"credential": Credential(), "model": None}
    if credential is not None:
        fields = {"credential": msgspec.structs.replace(credential, base_url=model.url)}
    async with runner(around) as client:
        result, events = await ended(client, "run.1", request(model, place.url, place.token, **fields))
    notes = ["No script could be run: no sandbox can be used."]
    assert (result.state, result.result) == ("done", {**answer(), "unsupported": [], "notes": notes})
    assert {asked.path for asked in model.asked} == {path}
    assert kinds(events) == ["accepted", "without_scripts", "turn", "tool", "turn", "ended"]
    assert result.spent.turns == 2
    first = model.asked[0]
    assert "submit_answer" in first.tools
    assert not {"list_cases", "get_case", "list_findings"} & set(first.tools)
    sent = json.dumps(first.headers)
    assert (SECRET in sent) == (way not in ("openai_compatible", "bedrock pair", "unset"))
    if way in ("bedrock pair", "unset"):
        assert "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/" in first.headers["authorization"]
        assert first.body["anthropic_version"] == "bedrock-2023-05-31"
        assert "model" not in first.body


@pytest.mark.parametrize(
    ("status", "kind", "calls_made"),
    [
        (401, "rejected_credential", 1),
        (403, "rejected_credential", 1),
        (404, "no_such_model", 1),
        (400, "provider_refused", 1),
        (429, "rate_limited", 5),
        (500, "provider_away", 5),
    ],
)
async def test_what_a_provider_refuses_is_told_apart(
    status: int, kind: str, calls_made: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc.runner.conversation_loop.RETRY_S", (0.0, 0.0, 0.0, 0.0))
    with standin(lambda _: Reply(status=status)) as model:
        async with runner() as client:
            result, events = await ended(client, "run.1", request(model, place.url, place.token))
        assert len(model.asked) == calls_made
    assert result.failure is not None
    assert result.failure.kind == kind
    assert kinds(events).count("retry") == calls_made - 1


SAID = f"max_tokens: 2000 > 1024, sent by {SECRET} and AKIA{'Z7QX3MPLW2KD4RTV'}"
SCRUBBED = "max_tokens: 2000 > 1024, sent by [hidden] and [aws-access-key-id AKIA… 20 characters]"


@pytest.mark.parametrize(
    ("reply", "kind", "detail"),
    [
        (
            Reply(
                status=400,
                raw=json.dumps({"error": {"type": "invalid_request_error", "message": SAID}}).encode(),
            ),
            "provider_refused",
            f"invalid_request_error: {SCRUBBED}",
        ),
        (
            Reply(
                status=400,
                raw=json.dumps({"message": SAID}).encode(),
                headers={"x-amzn-errortype": "ValidationException:http://aws"},
            ),
            "provider_refused",
            f"ValidationException: {SCRUBBED}",
        ),
        (
            Reply(status=422, raw=json.dumps([{"error": {"status": "INVALID", "message": SAID}}]).encode()),
            "provider_refused",
            f"INVALID: {SCRUBBED}",
        ),
        (Reply(status=413, raw=b"<h1>too\x00 large</h1>"), "provider_refused", "<h1>too large</h1>"),
        (Reply(status=400, raw=b""), "provider_refused", "the provider answers 400"),
        (Reply(raw=f"<html>\n{SAID}".encode()), "bad_answer", f"<html> {SCRUBBED}"),
        (Reply(raw=b'{"content": 7, "usage": {}}'), "bad_answer", '{"content": 7, "usage": {}}'),
        (Reply(raw=b"\xff" * 400 + SECRET.encode()), "bad_answer", "\ufffd" * 200),
        (Reply(raw=(f"{'x' * 190}{SECRET}").encode()), "bad_answer", "x" * 190 + "[hidden]"),
    ],
)
async def test_what_a_provider_says_of_a_fault_is_quoted_without_what_is_secret(
    reply: Reply, kind: str, detail: str, place: Place
) -> None:
    with standin(lambda _: reply) as model:
        async with runner() as client:
            result, events = await ended(client, "run.1", request(model, place.url, place.token))
        assert len(model.asked) == 1
    assert result.failure is not None
    assert (result.failure.kind, result.failure.detail) == (kind, detail)
    assert len(result.failure.detail) <= 200
    # Events are for everybody, and say only what kind it was.
    assert SECRET not in json.dumps(events)


async def test_what_a_model_may_not_is_refused_and_what_it_leaks_is_hidden(place: Place) -> None:
    leaked = "AKIA" + "Z7QX3MPLW2KD4RTV"

    def hostile(asked: Asked) -> Reply:
        match asked.turn:
            case 1:
                return calls(("list_cases", {}), ("delete_project", {}), ("query_count", "no object"))
            case 2:
                return calls(("query_count", {"dataset": "spans"}))
            case 3:
                return calls(("submit_answer", answer(ref="q99")))
            case 4:
                unseen = {"kind": "trace", "id": "ab" * 16, "note": ""}
                return calls(("submit_answer", {**answer(), "citations": [unseen]}))
        links = "[x](http://evil.example/?q=1) ![y](http://evil.example)"
        said = f"{leaked} {SECRET} {place.token} {links}\x1b[2J 417"
        return calls(("submit_answer", answer(summary=said)))

    with standin(hostile) as model:
        async with runner() as client:
            result, events = await ended(client, "run.1", request(model, place.url, place.token))
        told = "\n".join(model.asked[1].results)
        assert "there is no tool 'list_cases'" in told
        assert "there is no tool 'delete_project'" in told
    assert result.result is not None
    text = json.dumps(result.result)
    for forbidden in (leaked, SECRET, place.token, "evil.example", "\\u001b"):
        assert forbidden not in text
    assert result.result["unsupported"] == ["417"]
    assert kinds(events).count("refused") == 5


async def test_three_refused_answers_are_enough(place: Place) -> None:
    for script in (looks_then(lambda _: answer(ref="q7")), lambda _: Reply(text="I would rather talk")):
        with standin(script) as model:
            async with runner() as client:
                result, _ = await ended(client, "run.1", request(model, place.url, place.token))
        assert result.failure is not None
        assert result.failure.kind == "bad_output"


async def test_a_report_answers_each_check_and_says_unknown_of_those_it_forgot(place: Place) -> None:
    def report(_: Asked) -> Any:
        check = {"check": "marks", "assessment": "explains", "detail": "a release", "citations": []}
        return {
            "summary": "a release",
            "verdict": "behavior_change",
            "checklist": [check],
            "hypotheses": [],
            "detailed_report": "## What\nA release.",
        }

    with standin(looks_then(report)) as model:
        async with runner() as client:
            wanted = request(model, place.url, place.token, kind="rca", checklist=("who.tenant", "marks"))
            result, _ = await ended(client, "run.1", wanted)
    assert result.result is not None
    assert [(one["check"], one["assessment"]) for one in result.result["checklist"]] == [
        ("who.tenant", "unknown"),
        ("marks", "explains"),
    ]


async def test_a_full_context_is_trimmed_once_and_then_wrapped_up(place: Place) -> None:
    def reader(asked: Asked) -> Reply:
        if asked.forced:
            return calls(("submit_answer", answer()))
        return calls(("describe_dataset", {}), ("list_failure_modes", {}), ("get_project", {}))

    with standin(reader) as model:
        async with runner() as client:
            wanted = request(
                model,
                place.url,
                place.token,
                limits=RunLimits(60.0, 90, 10**7, 99.0, 1_000, 40_000),
                prompt="why " * 9_000,
            )
            result, events = await ended(client, "run.1", wanted)
        trimmed = [asked for asked in model.asked if any("trimmed" in text for text in asked.results)]
    assert result.state == "done"
    assert trimmed
    assert "wrapping_up" in kinds(events)


async def test_its_time_ends_a_run_and_whoever_wanted_it_can(place: Place) -> None:
    gate = threading.Event()
    with standin(lambda _: Reply(wait=gate)) as model:
        async with runner() as client:
            slow = request(model, place.url, place.token, limits=RunLimits(0.5, 5, 10**6, 9.0, 1_000))
            result, _ = await ended(client, "slow.1", slow)
            assert result.failure is not None
            assert result.failure.kind == "timeout"
            wanted = request(model, place.url, place.token)
            assert isinstance(await client.begin("run.1", wanted), RunStands)
            await client.cancel("run.1")
            result, events = await followed(client, "run.1")
            assert (result.state, result.failure) == ("cancelled", None)
            assert events[-1]["state"] == "cancelled"
            await client.cancel("run.1")
            gate.set()


async def test_the_runner_takes_two_keeps_eight_waiting_and_says_so(place: Place) -> None:
    gate = threading.Event()
    with standin(lambda _: Reply(wait=gate)) as model:
        async with runner() as client:
            wanted = request(model, place.url, place.token)
            stands = [await client.begin(f"run-{n}.1", wanted) for n in range(11)]
            again = await client.begin("run-9.1", wanted)
            other = await client.begin("run-9.1", msgspec.structs.replace(wanted, prompt="another"))
            with_key = msgspec.structs.replace(wanted.mcp, token="another key")
            same = await client.begin("run-9.1", msgspec.structs.replace(wanted, mcp=with_key))
            health = await client.health()
            gate.set()
    assert [(one.state, one.position) for one in stands[:4] if isinstance(one, RunStands)] == [
        ("running", 0),
        ("running", 0),
        ("waiting", 0),
        ("waiting", 1),
    ]
    assert stands[10] == RunnerRefused(429, "full")
    assert again == same == RunStands("waiting", 7, known=True)
    assert other == RunnerRefused(409, "other_digest")
    assert not isinstance(health, RunnerRefused | RunnerAway)
    assert (health.running, health.queued, health.capacity, health.scripts) == (2, 8, 2, False)


async def test_only_whoever_has_the_key_is_answered(model: StandIn, place: Place) -> None:
    async with runner() as client:
        stranger = RunnerClient(client.url, "guessed")
        assert await stranger.begin("run.1", request(model, place.url, place.token)) == RunnerRefused(
            401, "unauthorized"
        )
        assert await stranger.events("run.1", 0) == RunnerRefused(401, "unauthorized")
        assert await client.events("run.1", 0) == RunnerRefused(404, "unknown_run")
        assert isinstance(await client.result("run.1"), RunnerRefused)


async def test_what_nobody_reads_is_cancelled(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc.runner.runs.UNREAD_S", 0.2)
    monkeypatch.setattr("svc.runner.runs.LOOK_S", 0.05)
    gate = threading.Event()
    with standin(lambda _: Reply(wait=gate)) as model:
        async with runner() as client:
            await client.begin("run.1", request(model, place.url, place.token))
            with trio.fail_after(60):
                while True:
                    health = await client.health()
                    assert not isinstance(health, RunnerRefused | RunnerAway)
                    if not health.running:
                        break
            found = await client.result("run.1")
            assert isinstance(found, RunResult)
            assert found.state == "cancelled"
            gate.set()


async def test_the_older_form_answers_in_one_call(model: StandIn, place: Place) -> None:
    from svc.outside.http import HttpClient

    async with runner() as client:
        http, headers = HttpClient(), {"authorization": f"Bearer {KEY}"}
        wanted = request(model, place.url, place.token)
        done = await http.ask(
            "POST", client.url + "/triage", headers=headers, body=msgspec.json.encode(wanted)
        )
        said = msgspec.json.decode(done.body)
        assert (done.status, said["raw"]["verdict"], said["turns"]) == (200, "positive", 2)
        model.script = lambda _: Reply(status=401)
        failed = await http.ask(
            "POST", client.url + "/triage", headers=headers, body=msgspec.json.encode(wanted)
        )
        said = msgspec.json.decode(failed.body)
        assert (failed.status, said["kind"], said["timeout"]) == (502, "rejected_credential", False)
        assert said.keys() == {
            *("error", "kind", "timeout", "error_class", "detail", "elapsed_ms", "timeout_ms", "usage")
        }
        wrong = await http.ask("POST", client.url + "/rca", headers=headers, body=msgspec.json.encode(wanted))
        assert wrong.status == 400


async def test_a_key_that_was_revoked_ends_the_run(model: StandIn, place: Place) -> None:
    async with runner() as client:
        result, _ = await ended(client, "run.1", request(model, place.url, "svc_a_" + "x" * 22))
    assert result.failure is not None
    assert result.failure.kind == "mcp_away"
