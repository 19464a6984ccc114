"""Alerts over REST: who may, what is refused in which words, what stays secret, what is audited."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from protocol.alerts import CHANNELS_MAX, LOOKING_RULES_MAX, ChannelSecret
from protocol.rest.alerts import (
    ChannelMade,
    ChannelShown,
    ChannelTested,
    DeliveryPage,
    FiredShown,
    RuleShown,
)
from protocol.rest.query import timestamp
from svc.runtime.clock import now
from svc.store.alerts.channels import AlertChannelStore
from svc.store.postgres.database import Database
from tests.front.api.test_cases import documented
from tests.front.people import PROJECT, Browser, Replica, replica
from tests.receiver import Receiver, receiving
from tests.store.alerts.telling import channel, claimed, gathered, project_of
from tests.store.detection.detecting import execute, opened, seen

CHANNELS, RULES = PROJECT + "/alert-channels", PROJECT + "/alert-rules"
DELIVERIES = PROJECT + "/alert-deliveries"
HOOK = {"kind": "webhook", "name": "hook", "params": {"url": "https://hooks.example.org/in"}}
KEY = b64encode(bytes(32)).decode()


@pytest.fixture
async def api(store: Database) -> AsyncIterator[Replica]:
    async with replica(store, SVC_SECRET_KEY=KEY) as found:
        yield found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


async def made(owner: Browser, **more: Any) -> Any:
    answer = await owner.post(CHANNELS, HOOK | more)
    assert answer.status == 201, answer.body
    return answer.data


async def ruled(owner: Browser, channel_id: str, **more: Any) -> Any:
    answer = await owner.post(
        RULES, {"kind": "case.opened", "name": "cases", "channels": [channel_id], **more}
    )
    assert answer.status == 201, answer.body
    return answer.data


async def test_a_secret_of_ours_is_shown_once_and_sealed_for_its_channel(
    api: Replica, store: Database
) -> None:
    owner = await api.owner()
    found = await made(owner)
    documented(found, ChannelMade)
    assert found["secret"].startswith("whsec_")
    listed = (await owner.get(CHANNELS)).data
    documented(listed, list[ChannelShown])
    assert found["secret"] not in str(listed)
    [kept] = await AlertChannelStore(store).list(await project_of(store))
    assert found["secret"] not in str(kept.sealed)
    opened_ = api.means.seals.open(str(kept.sealed), kept.purpose)
    assert msgspec.json.decode(str(opened_), type=ChannelSecret).secret == found["secret"]
    # One that was brought is not shown at all.
    brought = await made(owner, name="own", secret=found["secret"])
    assert brought["secret"] is None


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (
            {"params": {"url": "nonsense"}},
            400,
            "url must be an https address without credentials, or an http address within"
            " SVC_ALERT_ALLOWED_NETWORKS",
        ),
        ({"params": {}}, 400, "params of webhook: Object missing required field `url`"),
        ({"kind": "email", "params": {"to": ["a@b.c"]}}, 400, "no mail server is set: SVC_SMTP_URL"),
        ({"kind": "slack", "params": {}}, 400, "slack needs its address of the incoming webhook"),
        ({"name": " "}, 400, "name must not be blank"),
        ({"secret": "whsec_x"}, 400, "the secret must be whsec_ and base64 of 24 to 64 bytes"),
    ],
)
async def test_a_channel_that_cannot_be_used_is_refused(
    api: Replica, body: dict[str, Any], status: int, told: str
) -> None:
    owner = await api.owner()
    found_status, code, message = (await owner.post(CHANNELS, HOOK | body)).refused
    assert (found_status, code) == (status, "BAD_REQUEST")
    assert message == told
    assert (await owner.get(CHANNELS)).data == []


async def test_names_are_taken_once_and_a_project_has_so_many_channels(api: Replica, store: Database) -> None:
    owner = await api.owner()
    await made(owner)
    assert (await owner.post(CHANNELS, HOOK)).refused == (
        409,
        "CONFLICT",
        "another alert channel has this name",
    )
    for number in range(CHANNELS_MAX - 1):
        await channel(store, await project_of(store), f"hook {number}")
    full = (await owner.post(CHANNELS, HOOK | {"name": "one more"})).refused
    assert full == (409, "CONFLICT", "the project has as many alert channels as it may (50)")


async def test_whoever_changes_where_a_token_goes_brings_it_again(api: Replica) -> None:
    owner = await api.owner()
    ntfy = {"kind": "ntfy", "name": "phone", "params": {"url": "https://ntfy.sh/a"}, "secret": "tk_1"}
    one = CHANNELS + "/" + (await owner.post(CHANNELS, ntfy)).data["channel"]["id"]
    moved = {**ntfy, "params": {"url": "https://elsewhere.example/a"}}
    del moved["secret"]
    refused = (await owner.put(one, moved)).refused
    assert refused[2] == "send the secret again: it would go to another place than before"
    assert (await owner.put(one, {**moved, "secret": "tk_2"})).status == 200
    named = {**moved, "name": "other phone"}
    assert (await owner.put(one, named)).data["name"] == "other phone"
    # What signs a webhook is not sent, so it may stay.
    hook = CHANNELS + "/" + (await made(owner))["channel"]["id"]
    elsewhere = HOOK | {"params": {"url": "https://elsewhere.example/in"}}
    assert (await owner.put(hook, elsewhere)).data["leads_to"] == "elsewhere.example"
    changed = (await owner.put(hook, ntfy)).refused
    assert changed == (409, "CONFLICT", "a channel keeps its kind; add another one")


async def test_a_test_says_what_became_of_it_and_quotes_nothing(api: Replica, receiver: Receiver) -> None:
    owner = await api.owner()
    one = CHANNELS + "/" + (await made(owner, params={"url": receiver.url}))["channel"]["id"]
    receiver.status = 500
    told = (await owner.post(one + "/test")).data
    documented(told, ChannelTested)
    assert (told["delivered"], told["status"], told["message"]) == (False, 500, "it fails (status 500)")
    receiver.status = 200
    assert (await owner.post(one + "/test")).data["delivered"] is True


async def test_private_addresses_are_not_reached_where_the_operator_lists_none(
    store: Database, receiver: Receiver
) -> None:
    public: Any = {
        "SVC_HTTP_BIND": "0.0.0.0:8000",
        "SVC_SECRET_KEY": KEY,
        "SVC_AUTH_COOKIE_PASSWORD": "x" * 32,
    }
    async with replica(store, **public) as api:
        owner = await api.owner()
        one = CHANNELS + "/" + (await made(owner, params={"url": receiver.url}))["channel"]["id"]
        told = (await owner.post(one + "/test")).data
        assert told["delivered"] is False
        assert told["message"].startswith("messages go in the clear (http) only to networks that")
    async with replica(store, SVC_ALERT_ALLOWED_NETWORKS="127.0.0.0/8", **public) as api:
        browser = api.browser()
        assert (await browser.sign_in("owner@example.org")).status == 200
        assert (await browser.post(one + "/test")).data["delivered"] is True
    assert len(receiver.taken) == 1


async def test_rotation_keeps_the_old_secret_for_a_day_and_only_webhooks_have_one(
    api: Replica, store: Database
) -> None:
    owner = await api.owner()
    first = await made(owner)
    one = CHANNELS + "/" + first["channel"]["id"]
    second = (await owner.post(one + "/rotate")).data
    assert second["secret"] != first["secret"]
    [kept] = await AlertChannelStore(store).list(await project_of(store))
    secret = msgspec.json.decode(
        str(api.means.seals.open(str(kept.sealed), kept.purpose)), type=ChannelSecret
    )
    assert (secret.secret, secret.previous) == (second["secret"], first["secret"])
    assert secret.previous_until is not None
    assert timedelta(hours=23) < secret.previous_until - now() <= timedelta(hours=24)
    slack = {"kind": "slack", "name": "slack", "secret": "https://hooks.slack.example/x"}
    other = CHANNELS + "/" + (await owner.post(CHANNELS, slack)).data["channel"]["id"]
    assert (await owner.post(other + "/rotate")).refused[0] == 409
    assert (await owner.post(CHANNELS + f"/{uuid4()}/rotate")).refused[:2] == (404, "NOT_FOUND")


async def test_a_rule_is_kept_changed_muted_and_removed(api: Replica) -> None:
    owner = await api.owner()
    channel_id = (await made(owner))["channel"]["id"]
    rule = await ruled(owner, channel_id)
    documented(rule, RuleShown)
    assert rule["params"] == {"least_severity": "low", "detectors": []}
    assert rule["says"] == "a case opens"
    one = RULES + "/" + rule["id"]
    changed = {"kind": "backup.old", "name": "backups", "channels": [channel_id], "params": {"hours": 30}}
    shown = (await owner.put(one, changed)).data
    assert (shown["kind"], shown["unwatched"]) == (
        "backup.old",
        "there is no nightly backup: SVC_BACKUP_DIR",
    )
    until = now() + timedelta(hours=1)
    muted = (await owner.post(one + "/mute", {"until": timestamp(until)})).data
    assert (muted["muted_until"], muted["muted_by"]) == (timestamp(until), "owner@example.org")
    assert (await owner.post(one + "/mute", {})).data["muted_until"] is None
    for wrong in ("tomorrow", timestamp(now() - timedelta(hours=1)), timestamp(now() + timedelta(days=400))):
        assert (await owner.post(one + "/mute", {"until": wrong})).refused[:2] == (400, "BAD_REQUEST")
    assert (await owner.delete(one)).status == 200
    assert (await owner.delete(one)).refused == (404, "NOT_FOUND", "no such alert rule")
    audit = (await owner.get(PROJECT + "/api-keys/audit")).data["rows"]
    acts = [row["action"] for row in audit if row["action"].startswith("alert_rule")]
    assert acts == ["alert_rule.delete", "alert_rule.mute", "alert_rule.mute", *["alert_rule.update"] * 2]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"params": {"least_severity": "worst"}}, "params of case.opened: Invalid enum value 'worst'"),
        ({"kind": "metric", "params": {"dataset": "spans"}}, "missing required field `value`"),
        (
            {"kind": "metric", "params": {"dataset": "spans", "value": 1, "filters": {"colour": "red"}}},
            "unknown field 'colour' for dataset 'spans'",
        ),
        ({"channels": [str(UUID(int=5))]}, "no such alert channel"),
        ({"channels": ["nonsense"]}, "no such alert channel"),
        ({"kind": "digest", "params": {"at": "8"}}, "params of digest"),
        (
            {"params": {"detectors": ["tool_error", "bogus"]}},
            "unknown detector 'bogus', only tool_error, ",
        ),
        (
            {"kind": "metric", "params": {"dataset": "spans", "value": 1, "filters": {"status": "failed"}}},
            "nothing meets this filter: status is never 'failed', only ok, error",
        ),
        (
            {"kind": "metric", "params": {"dataset": "spans", "value": 1, "filters": {"kind": None}}},
            "nothing meets this filter: kind is never null, only llm, ",
        ),
        (
            {"kind": "metric", "params": {"dataset": "tools", "value": 1, "filters": {"kind": "llm"}}},
            "nothing meets this filter: the kind of tools is never 'llm', only tool, mcp",
        ),
        (
            {"kind": "metric", "params": {"dataset": "spans", "value": 0, "bound": "below"}},
            "no figure is below 0",
        ),
        (
            {"kind": "metric", "params": {"dataset": "spans", "figure": "error_rate", "value": 1}},
            "no error_rate is above 1",
        ),
        (
            {"kind": "metric", "params": {"dataset": "spans", "value": 101, "bound": "falls"}},
            "no figure falls by more than 100 percent",
        ),
    ],
)
async def test_a_rule_that_cannot_be_asked_is_refused_by_name(
    api: Replica, body: dict[str, Any], told: str
) -> None:
    owner = await api.owner()
    plain = {"kind": "case.opened", "name": "rule", "channels": []}
    status, _code, message = (await owner.post(RULES, plain | body)).refused
    assert status in (400, 404)
    assert told in message
    assert (await owner.get(RULES)).data == []


async def test_a_rule_without_a_channel_says_that_nobody_is_notified(api: Replica) -> None:
    owner = await api.owner()
    nobody = "nobody is notified: the rule has no channel"
    channel_id = (await made(owner))["channel"]["id"]
    rule = await ruled(owner, channel_id)
    assert rule["warning"] is None
    added = await owner.post(RULES, {"kind": "case.opened", "name": "nowhere", "channels": []})
    assert (added.status, added.data["warning"]) == (201, nobody)
    # Nor is anybody once the last channel is removed.
    assert (await owner.delete(CHANNELS + "/" + channel_id)).status == 200
    assert [shown["warning"] for shown in (await owner.get(RULES)).data] == [nobody, nobody]


@pytest.mark.parametrize("dataset", ["spans", "traces", "model_calls", "tools"])
async def test_any_attribute_filters_a_rule_and_so_many_rules_look_for_one_that_is_no_field(
    api: Replica, dataset: str
) -> None:
    def body(name: str, **filters: Any) -> dict[str, Any]:
        params = {"dataset": dataset, "figure": "cost", "value": 1, "filters": filters}
        return {"kind": "metric", "name": name, "channels": [], "params": params}

    owner = await api.owner()
    rules = []
    for number in range(LOOKING_RULES_MAX):
        added = await owner.post(RULES, body(f"r{number}", **{"attr.seat.id": number}))
        assert added.status == 201, added.body
        assert f" with attr.seat.id {number} over an hour is above $1" in added.data["says"]
        rules.append(added.data)
    refused = (await owner.post(RULES, body("x", **{"attr.seat.id": "y"}))).refused
    assert refused == (
        400,
        "BAD_REQUEST",
        "at most 10 rules of a project filter by attributes that are not fields:"
        " make them fields on Settings, Attributes",
    )
    # Those by fields are as many as ever, and one that looks may still be changed.
    assert (await owner.post(RULES, body("x", tenant="acme"))).status == 201
    changed = await owner.put(f"{RULES}/{rules[-1]['id']}", body("r9", **{"attr.seat.id": "z"}))
    assert changed.status == 200
    fired = (await owner.post(RULES + "/backtest", {"kind": "metric", "params": changed.data["params"]})).data
    assert (fired["judged"], fired["fired"]) == (True, 0)
    assert fired["note"].endswith("attr.seat.id is not a field: searched the payloads of 0 spans")


async def test_the_backtest_answers_before_a_rule_is_kept(api: Replica, store: Database) -> None:
    owner = await api.owner()
    await opened(store, seen(1, detected_at=now()), project_id=await project_of(store), at=now())
    found = (await owner.post(RULES + "/backtest", {"kind": "case.opened"})).data
    documented(found, FiredShown)
    assert (found["judged"], found["fired"], len(found["instants"])) == (True, 1, 1)
    none = (await owner.post(RULES + "/backtest", {"kind": "ingest.down"})).data
    assert (none["judged"], none["note"]) == (False, "nothing is kept that this could be judged by")


async def test_messages_are_listed_and_sent_once_more(api: Replica, store: Database) -> None:
    owner = await api.owner()
    rule = await ruled(owner, (await made(owner))["channel"]["id"])
    await opened(store, seen(1), project_id=await project_of(store))
    await gathered(store)
    page = (await owner.get(DELIVERIES)).data
    documented(page, DeliveryPage)
    [one] = page["deliveries"]
    assert (one["state"], one["rule_id"], one["path"]) == ("queued", rule["id"], "/cases/C-1")
    replay = f"{DELIVERIES}/{one['id']}/replay"
    assert (await owner.post(replay)).refused[:2] == (409, "CONFLICT")
    await claimed(store)
    await execute(store, "update alert_delivery set state = 'dead', lease_token = null, lease_until = null,"
                         " ended_at = now()")  # fmt: skip
    assert (await owner.get(DELIVERIES + "?state=dead")).data["deliveries"] != []
    assert (await owner.post(replay)).data == {"queued": True}
    assert (await owner.get(DELIVERIES + "?state=dead")).data["deliveries"] == []
    assert (await owner.get(DELIVERIES + f"?channel_id={one['channel_id']}")).data["deliveries"] != []
    assert (await owner.get(DELIVERIES + "?channel_id=x")).refused[0] == 404
    for wrong in (uuid4(), "x"):
        assert (await owner.post(f"{DELIVERIES}/{wrong}/replay")).refused[0] == 404


async def test_viewers_and_keys_that_read_see_no_address_and_change_nothing(api: Replica) -> None:
    owner = await api.owner()
    channel_id = (await made(owner))["channel"]["id"]
    rule_id = (await ruled(owner, channel_id))["id"]
    viewer = await api.member("viewer@example.org", "viewer", owner)
    reader = api.browser(key=await api.token("query"), origin=None)
    for who in (viewer, reader):
        [shown] = (await who.get(CHANNELS)).data
        assert shown["leads_to"] == "hooks.example.org"
        assert (await who.get(RULES)).status == (await who.get(DELIVERIES)).status == 200
        for method, path, body in (
            ("POST", CHANNELS, HOOK),
            ("PUT", f"{CHANNELS}/{channel_id}", HOOK),
            ("DELETE", f"{CHANNELS}/{channel_id}", None),
            ("POST", f"{CHANNELS}/{channel_id}/test", None),
            ("POST", f"{CHANNELS}/{channel_id}/rotate", None),
            ("POST", RULES, {}),
            ("POST", RULES + "/backtest", {"kind": "digest"}),
            ("POST", f"{RULES}/{rule_id}/mute", {}),
            ("DELETE", f"{RULES}/{rule_id}", None),
            ("POST", f"{DELIVERIES}/{uuid4()}/replay", None),
        ):
            assert (await who.call(method, path, body)).status == 403, (method, path)
    assert (await viewer.get(CHANNELS)).data[0]["params"] is None
    agent = api.browser(key=await api.token("admin"), origin=None)
    assert (await agent.post(f"{RULES}/{rule_id}/mute", {})).status == 200


async def test_another_project_finds_none_of_it(api: Replica) -> None:
    owner = await api.owner()
    channel_id = (await made(owner))["channel"]["id"]
    assert (await owner.post("/api/orgs/default/projects", {"name": "Other"})).status == 201
    other = "/api/orgs/default/projects/other"
    assert (await owner.get(other + "/alert-channels")).data == []
    assert (await owner.post(f"{other}/alert-channels/{channel_id}/test")).refused[0] == 404
    body = {"kind": "digest", "name": "daily", "channels": [channel_id]}
    assert (await owner.post(other + "/alert-rules", body)).refused[2] == "no such alert channel"


async def test_a_channel_whose_key_is_lost_says_so(api: Replica, store: Database) -> None:
    owner = await api.owner()
    one = (await made(owner))["channel"]["id"]
    async with replica(store, SVC_SECRET_KEY=b64encode(bytes(range(32))).decode()) as other:
        browser = other.browser()
        assert (await browser.sign_in("owner@example.org")).status == 200
        [shown] = (await browser.get(CHANNELS)).data
        assert shown["secret"] == "lost"
        told = (await browser.post(f"{CHANNELS}/{one}/test")).data
        assert "it was sealed with a key that is not here" in told["message"]
        assert (await browser.post(f"{CHANNELS}/{one}/rotate")).status == 200
