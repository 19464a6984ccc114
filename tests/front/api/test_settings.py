"""Settings over REST: retention replaces both terms, the taxonomy goes whole, integrations keep secrets."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import attrs
import pytest

from svc.store.postgres.database import Database
from tests.answering import answering
from tests.front.people import ORG, PROJECT, Browser, Replica, replica
from tests.store.spans.test_writing import fetch

RETENTION = PROJECT + "/retention"
INTEGRATIONS = ORG + "/integrations"
SECRET = "sk-planted-4711"
OLD, NEW = b64encode(bytes(32)).decode(), b64encode(bytes(range(32))).decode()


@pytest.fixture
async def api(store: Database) -> AsyncIterator[Replica]:
    async with replica(store, SVC_SECRET_KEY=OLD) as found:
        yield found


async def test_retention_shows_what_is_set_the_defaults_and_what_is_in_effect(api: Replica) -> None:
    owner = await api.owner()
    assert (await owner.get(RETENTION)).data == {
        "traces": None,
        "detections": None,
        "defaults": {"traces": 90, "detections": 90},
        "effective": {"traces": 90, "detections": 90},
    }


async def test_retention_put_replaces_both_terms_at_once(api: Replica) -> None:
    owner = await api.owner()
    both = (await owner.put(RETENTION, {"traces": 7, "detections": 0})).data
    assert (both["traces"], both["detections"]) == (7, 0)
    assert both["effective"] == {"traces": 7, "detections": 0}
    for cleared in ({"detections": 3}, {"traces": None, "detections": 3}):
        one = (await owner.put(RETENTION, cleared)).data
        assert (one["traces"], one["detections"]) == (None, 3)
        assert one["effective"] == {"traces": 90, "detections": 3}
    assert (await owner.put(RETENTION, {})).data["effective"] == {"traces": 90, "detections": 90}


async def test_rules_of_retention_are_replaced_all_at_once_and_audited(api: Replica) -> None:
    owner = await api.owner()
    assert (await owner.get(RETENTION + "/rules")).data == {"rules": []}
    by_environment = {"field": "environment", "value": "development", "days": 7}
    by_tenant = {"field": "tenant", "value": "acme", "days": 30}
    both = {"rules": [by_environment, by_tenant]}
    assert (await owner.put(RETENTION + "/rules", {"rules": [by_tenant, by_environment]})).data == both
    assert (await owner.get(RETENTION + "/rules")).data == both
    assert (await owner.put(RETENTION + "/rules", {"rules": [by_tenant]})).data == {"rules": [by_tenant]}
    rows = await fetch(api.database, "select details from audit_row where action = 'retention.rules'")
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"field": "name", "value": "x", "days": 7}, "'name' is no attribute"),
        ({"field": "attr.nobody.said", "value": "x", "days": 7}, "is not a field of this project"),
        ({"field": "environment", "value": "x", "days": 0}, "days"),
        ({"field": "environment", "value": "", "days": 1}, "value"),
        ({"field": "environment", "value": "x", "days": 36_501}, "days"),
    ],
)
async def test_a_rule_that_means_nothing_is_refused(api: Replica, rule: Any, message: str) -> None:
    owner = await api.owner()
    refused = (await owner.put(RETENTION + "/rules", {"rules": [rule]})).refused
    assert refused[0] == 400
    assert message in refused[2]
    twice = {"field": "environment", "value": "x", "days": 7}
    refused = (await owner.put(RETENTION + "/rules", {"rules": [twice, twice | {"days": 8}]})).refused
    assert refused[2] == "a value of a field has one rule"
    many = [twice | {"value": f"v{number}"} for number in range(21)]
    assert (await owner.put(RETENTION + "/rules", {"rules": many})).refused[0] == 400


@pytest.mark.parametrize("bad", [-1, 1.5, "7", 36_501, True, [7]])
async def test_a_term_that_is_no_number_of_days_is_refused(api: Replica, bad: Any) -> None:
    owner = await api.owner()
    status, code, message = (await owner.put(RETENTION, {"traces": bad})).refused
    assert (status, code) == (400, "BAD_REQUEST")
    assert "traces" in message
    assert (await owner.get(RETENTION)).data["traces"] is None


async def test_a_changed_term_is_audited(api: Replica) -> None:
    owner = await api.owner()
    await owner.put(RETENTION, {"traces": 7})
    (row,) = await fetch(
        api.database, "select actor, details::text from audit_row where action = 'retention.update'"
    )
    assert row["actor"] == "owner@example.org"
    assert '"traces": 7' in row["details"]


async def test_keys_read_retention_and_do_not_change_it(api: Replica) -> None:
    await api.owner()
    for scope, reads in (("write", 403), ("query", 200), ("admin", 200)):
        key = api.browser(key=await api.token(scope), origin=None)
        assert (await key.get(RETENTION)).status == reads
        assert (await key.put(RETENTION, {"traces": 1})).status == 403


TAXONOMY = {
    "packs": [{"id": "support", "name": "Support"}],
    "failure_modes": [
        {
            "id": "m",
            "name": "M",
            "severity": "high",
            "scope": "single_call",
            "layer": "A",
            "pack_id": "support",
        }
    ],
}


async def test_a_taxonomy_is_replaced_whole_by_members_and_admin_keys(api: Replica) -> None:
    owner = await api.owner()
    counts = (await owner.put(PROJECT + "/taxonomy", TAXONOMY)).data
    assert counts == {"packs": 1, "chains": 0, "call_sites": 0, "failure_modes": 1}
    key = api.browser(key=await api.token("admin"), origin=None)
    assert (await key.put(PROJECT + "/taxonomy", {})).data["packs"] == 0
    assert await fetch(api.database, "select from failure_mode") == []
    assert len(await fetch(api.database, "select from audit_row where action = 'taxonomy.update'")) == 2


async def test_a_taxonomy_that_does_not_hold_together_changes_nothing(api: Replica) -> None:
    owner = await api.owner()
    await owner.put(PROJECT + "/taxonomy", TAXONOMY)
    status, _, message = (
        await owner.put(PROJECT + "/taxonomy", {"failure_modes": TAXONOMY["failure_modes"]})
    ).refused
    assert status == 400
    assert "'support'" in message
    assert len(await fetch(api.database, "select from failure_mode")) == 1


async def test_an_output_schema_is_stored_with_its_call_site_and_has_to_be_one(api: Replica) -> None:
    owner = await api.owner()
    site = {"id": "reply", "intent": "Answers", "output_schema": {"type": "object", "required": ["answer"]}}
    assert (await owner.put(PROJECT + "/taxonomy", {"call_sites": [site]})).data["call_sites"] == 1
    stored = await fetch(api.database, "select output_schema::text as schema from call_site_intent")
    assert [json.loads(row["schema"]) for row in stored] == [site["output_schema"]]
    bad = site | {"output_schema": {"type": "strin"}}
    status, _, message = (await owner.put(PROJECT + "/taxonomy", {"call_sites": [bad]})).refused
    assert status == 400
    assert "'reply' is no JSON Schema" in message
    assert len(await fetch(api.database, "select from call_site_intent")) == 1


@attrs.define
class Provider:
    """A model provider's stand-in that remembers what it was asked."""

    url: str
    asked: list[tuple[str, str | None]] = attrs.field(factory=list)


@pytest.fixture
def provider() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append((self.path, self.headers["authorization"]))
            good = self.headers["authorization"] == f"Bearer {SECRET}"
            self.send_response(302 if self.path.startswith("/moved") else 200 if good else 401)
            self.send_header("location", "/v1/models")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found = Provider(f"http://127.0.0.1:{server.server_port}")
    with answering(server):
        yield found


def integration(at: Provider | None = None, **fields: Any) -> dict[str, Any]:
    base_url = "http://127.0.0.1:9/v1" if at is None else at.url + "/v1"
    whole = {"kind": "model_provider", "provider": "openai_compatible", "name": "mine", "base_url": base_url}
    return {**whole, "secret": SECRET, **fields}


async def added(owner: Browser, body: dict[str, Any]) -> dict[str, Any]:
    answer = await owner.post(INTEGRATIONS, body)
    assert answer.status == 201, answer.body
    data: dict[str, Any] = answer.data
    return data


async def test_a_secret_is_never_shown_again(api: Replica, caplog: pytest.LogCaptureFixture) -> None:
    owner = await api.owner()
    made = await added(owner, integration())
    assert (made["secret"], made["name"]) == ("sealed", "mine")
    shown = (await owner.get(INTEGRATIONS)).body
    stored = await fetch(api.database, "select i::text as row from integration i")
    audit = await fetch(api.database, "select a::text as row from audit_row a")
    for text in (str(made), str(shown), str([row["row"] for row in (*stored, *audit)]), caplog.text):
        assert SECRET not in text
        assert b64encode(SECRET.encode()).decode() not in text


async def test_reachability_is_tested_on_demand(api: Replica, provider: Provider) -> None:
    owner = await api.owner()
    good = await added(owner, integration(provider))
    bad = await added(owner, integration(provider, name="bad", secret="wrong"))
    away = await added(owner, integration(None, name="away"))
    moved = await added(owner, integration(provider, name="moved", base_url=provider.url + "/moved"))

    async def tried(made: dict[str, Any]) -> Any:
        return (await owner.post(f"{INTEGRATIONS}/{made['id']}/test")).data

    told = await tried(good)
    assert (told["reachable"], told["accepted"], told["status"]) == (True, True, 200)
    assert provider.asked == [("/v1/models", f"Bearer {SECRET}")]
    told = await tried(bad)
    assert (told["reachable"], told["accepted"], told["status"]) == (True, False, 401)
    assert "refused" in told["message"]
    told = await tried(away)
    assert (told["reachable"], told["status"]) == (False, None)
    told = await tried(moved)
    assert (told["accepted"], told["status"]) == (False, 302)
    assert len(provider.asked) == 3, "no redirect is followed"


PRIVATE = (
    "its address is private, of a special use or of this machine; SVC_INTEGRATION_ALLOWED_NETWORKS lists "
    "such networks that may be reached"
)
NEVER = (
    "its address is link-local, multicast or where a cloud tells machines their credentials: never "
    "connected to, and no setting opens it"
)


async def told_of(api: Replica, owner: Browser, address: str) -> Any:
    """What a test of an integration at an address says."""
    made = await added(owner, integration(name=address[:100], base_url=f"http://{address}/latest"))
    return (await owner.post(f"{INTEGRATIONS}/{made['id']}/test")).data


@pytest.mark.parametrize("networks", ["", "127.0.0.0/8", "0.0.0.0/0 ::/0"])
async def test_no_setting_lets_an_integration_reach_the_metadata_of_a_cloud(
    store: Database, networks: str
) -> None:
    async with replica(store, SVC_INTEGRATION_ALLOWED_NETWORKS=networks) as api:
        owner = await api.owner()
        for address in (
            *("169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376"),
            *("[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[fe80::1]"),
            *("[fd00:ec2::254]", "100.100.100.200", "168.63.129.16"),
        ):
            told = await told_of(api, owner, address)
            assert (told["reachable"], told["status"], told["message"]) == (False, None, NEVER), address


async def test_a_private_address_is_refused_with_the_setting_that_opens_it(
    store: Database, provider: Provider
) -> None:
    here = provider.url.removeprefix("http://")
    async with replica(store, SVC_HTTP_BIND="0.0.0.0:8000") as api:
        owner = await api.owner()
        for address in (here, here.replace("127.0.0.1", "localhost"), "10.0.0.1", "192.168.1.1", "[::1]"):
            told = await told_of(api, owner, address)
            assert (told["reachable"], told["message"]) == (False, PRIVATE), address
        cookie = owner.cookie
    assert provider.asked == []
    opened = {"SVC_HTTP_BIND": "0.0.0.0:8000", "SVC_INTEGRATION_ALLOWED_NETWORKS": "127.0.0.0/8"}
    async with replica(store, **opened) as api:
        owner = api.browser(cookie=cookie)
        made = next(row for row in (await owner.get(INTEGRATIONS)).data if row["name"] == here)
        told = (await owner.post(f"{INTEGRATIONS}/{made['id']}/test")).data
        assert (told["reachable"], len(provider.asked)) == (True, 1)


async def test_a_secret_goes_nowhere_else_than_where_it_was_entered_for(
    api: Replica, provider: Provider
) -> None:
    owner = await api.owner()
    made = await added(owner, integration())
    path = f"{INTEGRATIONS}/{made['id']}"
    elsewhere = integration(provider)
    del elsewhere["secret"]
    status, _, message = (await owner.put(path, elsewhere)).refused
    assert (status, "secret again" in message) == (400, True)
    renamed = integration(name="renamed")
    del renamed["secret"]
    assert (await owner.put(path, renamed)).data["name"] == "renamed"
    assert (await owner.put(path, integration(provider))).status == 200
    assert (await owner.post(path + "/test")).data["accepted"] is True


async def test_a_value_sealed_with_a_lost_key_says_so_and_breaks_nothing_else(
    store: Database, provider: Provider
) -> None:
    async with replica(store, SVC_SECRET_KEY=OLD) as before:
        owner = await before.owner()
        lost = await added(owner, integration(provider))
        cookie = owner.cookie
    async with replica(store, SVC_SECRET_KEY=NEW) as after:
        owner = after.browser(cookie=cookie)
        kept = await added(owner, integration(provider, name="kept"))
        states = {row["name"]: row["secret"] for row in (await owner.get(INTEGRATIONS)).data}
        assert states == {"mine": "lost", "kept": "sealed"}
        told = (await owner.post(f"{INTEGRATIONS}/{lost['id']}/test")).data
        assert (told["reachable"], told["accepted"]) == (False, False)
        assert "SVC_SECRET_KEY_PREVIOUS" in told["message"]
        assert (await owner.post(f"{INTEGRATIONS}/{kept['id']}/test")).data["accepted"] is True
        assert (await owner.put(f"{INTEGRATIONS}/{lost['id']}", integration(provider))).data[
            "secret"
        ] == "sealed"
    async with replica(store, SVC_SECRET_KEY=OLD, SVC_SECRET_KEY_PREVIOUS=NEW) as back:
        owner = back.browser(cookie=cookie)
        assert {row["secret"] for row in (await owner.get(INTEGRATIONS)).data} == {"sealed"}


@pytest.mark.parametrize(
    "fields",
    [
        {"provider": "github"},
        {"base_url": None},
        {"base_url": "ftp://x"},
        {"base_url": "http://u:p@x/v1"},
        {"base_url": "http://x/v1?key=1"},
        {"base_url": "http://[x"},
        {"secret": "two\nlines"},
        {"secret": "schlüssel"},
        {"name": " "},
        {"name": "a\x00b"},
        {"kind": "fax"},
        {"surprise": 1},
    ],
)
async def test_what_cannot_work_is_refused(api: Replica, fields: dict[str, Any]) -> None:
    owner = await api.owner()
    answer = await owner.post(INTEGRATIONS, integration(**fields))
    assert answer.status == 400, answer.body
    assert SECRET not in str(answer.body)
    assert (await owner.get(INTEGRATIONS)).data == []


async def test_a_named_provider_needs_a_secret(api: Replica) -> None:
    owner = await api.owner()
    body = {"kind": "git", "provider": "github", "name": "code"}
    assert "needs a secret" in (await owner.post(INTEGRATIONS, body)).refused[2]
    assert (await added(owner, {**body, "secret": "t"}))["base_url"] is None


async def test_a_name_is_taken_once_and_free_again_after_removal(api: Replica) -> None:
    owner = await api.owner()
    made = await added(owner, integration())
    assert (await owner.post(INTEGRATIONS, integration())).status == 409
    assert (await owner.delete(f"{INTEGRATIONS}/{made['id']}")).data == {"removed": True}
    assert (await owner.delete(f"{INTEGRATIONS}/{made['id']}")).status == 404
    await added(owner, integration())
    actions = await fetch(api.database, "select action from audit_row where subject_kind = 'integration'")
    assert [row["action"] for row in actions] == ["provider.update", "provider.delete", "provider.update"]


async def test_members_look_and_do_not_touch_and_keys_only_read(api: Replica) -> None:
    owner = await api.owner()
    made = await added(owner, integration())
    member = await api.member("member@example.org", "member", owner)
    for somebody, reads in (
        (member, 200),
        (api.browser(key=await api.token("admin"), origin=None), 200),
        (api.browser(key=await api.token("write"), origin=None), 403),
        (api.browser(), 401),
    ):
        assert (await somebody.get(INTEGRATIONS)).status == reads
        for method, path in (
            ("POST", INTEGRATIONS),
            ("PUT", f"{INTEGRATIONS}/{made['id']}"),
            ("DELETE", f"{INTEGRATIONS}/{made['id']}"),
            ("POST", f"{INTEGRATIONS}/{made['id']}/test"),
        ):
            assert (await somebody.call(method, path, integration())).status in (401, 403)


async def test_an_unknown_integration_is_not_found(api: Replica) -> None:
    owner = await api.owner()
    for name in ("nothing", "00000000-0000-4000-8000-000000000000"):
        assert (await owner.post(f"{INTEGRATIONS}/{name}/test")).status == 404


async def test_a_taxonomy_may_be_larger_than_other_bodies_and_is_bounded(api: Replica) -> None:
    owner = await api.owner()
    modes = [
        {"id": f"m{number}", "name": "n", "severity": "low", "scope": "trace", "layer": "A",
         "description": "d" * 4000}
        for number in range(500)
    ]  # fmt: skip
    assert (await owner.put(PROJECT + "/taxonomy", {"failure_modes": modes})).data["failure_modes"] == 500
    large = b'{"failure_modes": [' + b" " * 17_000_000 + b"]}"
    assert (await owner.put(PROJECT + "/taxonomy", large)).status == 413
    assert (await owner.put(PROJECT + "/retention", b" " * 1_100_000)).status == 413
