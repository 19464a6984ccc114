"""Alerts of a real service at a real receiver: signed, once by their id, through kills and outages."""

from __future__ import annotations

import itertools
import re
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.debian_postgres import DebianPostgres
from tests.receiver import Receiver, receiving
from tests.service import PLAIN, Service, running, until
from tests.wire import request, span

API = "/api/orgs/default/projects/default"
_numbers = itertools.count(1)


def call(service: Service, key: str, method: str, path: str, json: Any = None) -> Any:
    """The data of an answer; fails on a refusal."""
    answer = httpx2.request(
        method,
        service.url + API + path,
        json=json,
        headers={"authorization": f"Bearer {key}"},
        timeout=30,
        **PLAIN,
    )
    assert answer.status_code < 300, answer.text
    return answer.json()["data"]


def admin(service: Service) -> str:
    return service.command("keys", "create", "--scope", "admin", "--name", "alerts").strip()


def hooked(service: Service, key: str, receiver: Receiver) -> Any:
    """A channel to the receiver."""
    name = f"hook {next(_numbers)}"
    body = {"kind": "webhook", "name": name, "params": {"url": receiver.url + "/in"}}
    return call(service, key, "POST", "/alert-channels", body)


def fires(service: Service, key: str, channel_id: str) -> Any:
    """A rule whose condition holds since a span was sent."""
    return call(
        service,
        key,
        "POST",
        "/alert-rules",
        {
            "kind": "metric",
            "name": f"rule {next(_numbers)}",
            "channels": [channel_id],
            "params": {"dataset": "spans", "value": 0, "least": 0},
        },
    )


def arrived(service: Service) -> None:
    """Until there are spans, whoever else sent some to the same service."""
    until(lambda: service.ask("count", {"dataset": "spans", "filters": {}})["count"] >= 1)


def sent(service: Service, key: str) -> list[Any]:
    """What arrived, by the service's own word."""
    found: list[Any] = call(service, key, "GET", "/alert-deliveries?state=sent")["deliveries"]
    return found


def test_a_rule_tells_a_receiver_signed_and_within_half_a_minute(service: Service) -> None:
    key = admin(service)
    service.send(request(span()).SerializeToString())
    with receiving() as receiver:
        made = hooked(service, key, receiver)
        channel_id = made["channel"]["id"]
        tested = call(service, key, "POST", f"/alert-channels/{channel_id}/test")
        assert (tested["delivered"], tested["status"]) == (True, 204)
        [trial] = receiver.taken
        said = Webhook(made["secret"]).verify(trial.body, dict(trial.headers))
        assert said["type"] == "test"
        with pytest.raises(WebhookVerificationError):
            Webhook(made["secret"]).verify(trial.body + b" ", dict(trial.headers))
        arrived(service)
        rule = fires(service, key, channel_id)
        until(lambda: len(receiver.taken) == 2)
        alert = receiver.taken[1]
        said = Webhook(made["secret"]).verify(alert.body, dict(alert.headers))
        assert (said["type"], said["data"]["state"]) == ("metric", "firing")
        assert said["data"]["title"] == "The number of spans over an hour is above 0"
        page = f"http://localhost:{service.port}/orgs/default/projects/default/explore"
        assert said["data"]["link"] == f"{page}?dataset=spans&measure=count&range=24h"
        until(lambda: service.metric("svc_alert_deliveries_sent_total") >= 1)
        # Both secrets sign after a rotation, and a replay has the id that it had.
        rotated = call(service, key, "POST", f"/alert-channels/{channel_id}/rotate")
        [delivery] = [one for one in sent(service, key) if one["channel_id"] == channel_id]
        call(service, key, "POST", f"/alert-deliveries/{delivery['id']}/replay")
        until(lambda: len(receiver.taken) == 3)
        again = receiver.taken[2]
        assert again.id == alert.id == f"msg_{delivery['id'].replace('-', '')}"
        for secret in (made["secret"], rotated["secret"]):
            Webhook(secret).verify(again.body, dict(again.headers))
        call(service, key, "DELETE", f"/alert-rules/{rule['id']}")
        call(service, key, "DELETE", f"/alert-channels/{channel_id}")
    assert service.health()["components"]["alerts"]["status"] == "UP"


def test_a_receiver_that_is_down_gets_it_when_it_is_back(service: Service) -> None:
    key = admin(service)
    service.send(request(span()).SerializeToString())
    arrived(service)
    with receiving() as receiver:
        receiver.status = 500
        channel_id = hooked(service, key, receiver)["channel"]["id"]
        rule = fires(service, key, channel_id)
        until(lambda: len(receiver.taken) == 1)
        until(lambda: call(service, key, "GET", "/alert-deliveries?state=queued")["deliveries"] != [])
        [waiting] = call(service, key, "GET", "/alert-deliveries?state=queued")["deliveries"]
        assert (waiting["status"], waiting["failure"]) == (500, "it fails (status 500)")
        receiver.status = 200
        until(lambda: any(one["id"] == waiting["id"] for one in sent(service, key)))
        assert len(set(receiver.ids())) == 1
        call(service, key, "DELETE", f"/alert-rules/{rule['id']}")
        call(service, key, "DELETE", f"/alert-channels/{channel_id}")


@pytest.mark.release
@pytest.mark.alone
def test_a_kill_in_mid_delivery_loses_nothing_and_the_receiver_knows_it_by_its_id(open_folder: Path) -> None:
    folder = open_folder / "data"
    with receiving() as receiver:
        receiver.open.clear()
        with running(folder) as service:
            key = admin(service)
            service.send(request(span()).SerializeToString())
            arrived(service)
            channel_id = hooked(service, key, receiver)["channel"]["id"]
            fires(service, key, channel_id)
            # It has the message and has not answered.
            until(lambda: len(receiver.taken) == 1)
            service.process.kill()
            service.process.wait(10)
        receiver.open.set()
        with running(folder) as service:
            until(lambda: len(sent(service, key)) == 1)
            assert len(set(receiver.ids())) == 1
            assert call(service, key, "GET", "/alert-deliveries?state=queued")["deliveries"] == []


@pytest.mark.release
@pytest.mark.alone
def test_two_copies_deliver_each_alert_once(postgres: DebianPostgres, open_folder: Path) -> None:
    settings: Any = {"SVC_JDBC_URL": postgres.url, "SVC_INGEST_DECODERS": "0"}
    with ExitStack() as copies, receiving() as receiver:
        one = copies.enter_context(running(open_folder / "one", **settings))
        two = copies.enter_context(running(open_folder / "two", **settings))
        key = admin(one)
        one.send(request(span()).SerializeToString())
        one.wait_for_spans(1)
        channels = [hooked(one, key, receiver)["channel"]["id"] for _ in range(3)]
        for number in range(12):
            fires(one, key, channels[number % 3])
        until(lambda: len(sent(two, key)) == 12)
        assert len(receiver.ids()) == len(set(receiver.ids())) == 12
        done = [copy.metric("svc_alert_deliveries_sent_total") for copy in (one, two)]
        assert sum(done) == 12


def test_that_the_database_is_away_is_told_while_it_is_away_and_its_end_once(
    postgres: DebianPostgres, open_folder: Path
) -> None:
    settings: Any = {"SVC_JDBC_URL": postgres.url, "SVC_INGEST_DECODERS": "0"}
    with running(open_folder / "one", errors_expected=True, **settings) as service, receiving() as receiver:
        key = admin(service)
        made = hooked(service, key, receiver)
        rule = {"kind": "ingest.down", "name": "down", "channels": [made["channel"]["id"]]}
        call(service, key, "POST", "/alert-rules", {**rule, "params": {"minutes": 0}})
        until(lambda: service.metric("svc_alert_standing_rules") == 1)
        postgres.stop()
        until(lambda: service.metric("svc_alert_deliveries_direct_total") == 1)
        postgres.start()
        until(lambda: len(receiver.taken) == 2)
        until(lambda: len(sent(service, key)) == 2)
        first, second = (
            Webhook(made["secret"]).verify(one.body, dict(one.headers)) for one in receiver.taken
        )
        assert [said["data"]["state"] for said in (first, second)] == ["firing", "over"]
        assert first["data"]["title"].startswith("Ingest is down on ")
        assert "The database does not answer" in first["data"]["items"][0]["text"]
        kept = {f"msg_{one['id'].replace('-', '')}" for one in sent(service, key)}
        assert kept == set(receiver.ids())


@pytest.mark.release
def test_the_commands_of_the_page_run_as_they_stand_there(service: Service) -> None:
    page = (Path(__file__).parents[2] / "deploy" / "alerts.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```\n(.*?)^```", page, re.M | re.S)
    said: dict[str, str] = {}
    with receiving() as receiver:
        for line in block.splitlines():
            program, *words = shlex.split(line.replace("https://hooks.example.org", receiver.url))
            assert program == "trace-svc"
            said[" ".join(words[1:3])] = service.command(*words)
        secret = said["add-channel on call"].strip()
        (trial,) = receiver.taken
        Webhook(secret).verify(trial.body, dict(trial.headers))
    assert said["test on call"] == "accepted (status 204)\n"
    assert "would have fired 0 times" in said["backtest --kind"]
    assert "the error rate of traces over an hour is above 10 %" in said["list"]
    assert said["mute errors"].startswith("muted until ")
    assert said["replay dead"] == "0 messages are sent again\n"
    for rule in ("new cases", "errors"):
        service.command("alerts", "remove", rule)
    service.command("alerts", "remove-channel", "on call")
    # What the page says of metrics is there to be scraped.
    scraped = httpx2.get(service.url + "/actuator/prometheus", timeout=30, **PLAIN).text
    named = re.findall(r"`(svc_alert_\w+)`", page)
    assert len(named) >= 7
    assert [name for name in named if name not in scraped] == []


@pytest.mark.release
def test_a_message_is_replayed_from_the_command_line_and_a_token_comes_from_a_file(
    service: Service, tmp_path: Path
) -> None:
    def alerts(*words: str) -> str:
        return service.command("alerts", *words)

    service.send(request(span()).SerializeToString())
    arrived(service)
    with receiving() as receiver:
        token = tmp_path / "token"
        token.write_text("tk_secret\n")
        topic = receiver.url + "/topic"
        alerts("add-channel", "phone", "--kind", "ntfy", "--url", topic, "--secret-file", str(token))
        params = ("--param", "dataset=spans", "--param", "value=0", "--param", "least=0")
        alerts("add", "spans", "--kind", "metric", "--channel", "phone", *params)
        until(lambda: len(receiver.taken) == 1)
        assert receiver.taken[0].headers["authorization"] == "Bearer tk_secret"
        until(lambda: "above 0" in alerts("deliveries", "--state", "sent"))
        found = re.search(r"^(\S+) .*phone", alerts("deliveries", "--state", "sent"), re.M)
        assert found is not None
        assert alerts("replay", found[1]) == "1 message is sent again\n"
        until(lambda: len(receiver.taken) == 2)
        assert "tk_secret" not in alerts("channels", "--json")
        alerts("remove", "spans")
        alerts("remove-channel", "phone")
