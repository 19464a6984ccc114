"""Alerts as pages: channels and their rules in two steps, what rules would have told, deliveries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest

from protocol.alerts import Undelivered
from protocol.samples import BackupSample
from svc.domain.alerts.checking import metric_path
from svc.domain.alerts.params import MetricParams
from svc.store.alerts.deliveries import PostgresDeliveryStore
from svc.store.alerts.samples import keep_samples
from svc.store.postgres.database import Database
from tests.front.people import Replica
from tests.receiver import Receiver, receiving
from tests.store.alerts.telling import claimed, gathered, project_of
from tests.store.detection.detecting import opened, seen
from tests.web.test_pages import heading
from tests.web.test_triage import invited
from tests.web.visitor import BASE, Seen, Visitor

HERE = BASE + "/settings/notifications"
#: What the first of the two steps sends beside what is typed.
STEP = {"kind": "webhook", "step": "1"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


async def hooked(owner: Visitor, receiver: Receiver) -> str:
    """A channel to the receiver, made by its form; its id."""
    made = await owner.post(HERE + "/channel", {"kind": "webhook", "name": "my hook", "url": receiver.url})
    assert made.status == 200, made.text
    assert re.search(r"whsec_[A-Za-z0-9+/=]{40,}", made.text)
    assert made.headers["cache-control"] == "no-store"
    return id_of(await owner.get(HERE), "channel")


def id_of(page: Seen, what: str) -> str:
    found = re.search(rf'id="{what}-([0-9a-f-]{{36}})"', page.text)
    assert found is not None
    return found[1]


async def ruled(owner: Visitor, channel_id: str, **more: str) -> str:
    form = {"kind": "case.opened", "name": "new cases", "channels": channel_id, **more}
    kept = await owner.post(HERE + "/rule", form)
    assert kept.status == 303, kept.text
    return id_of(await owner.get(HERE), "rule")


async def test_an_empty_page_says_what_to_do(owner: Visitor) -> None:
    page = await owner.get(HERE)
    assert heading(page) == "Nobody is notified yet"
    # The first step stands there already.
    assert 'aria-label="Step 1 of 2"' in page.text
    assert 'name="url"' in page.text
    assert "Add a rule" not in page.text
    assert "No mail server is configured" in (await owner.get(HERE + "/channel?kind=email")).text
    assert (await owner.get(HERE + "/rule")).location == HERE + "/channel"


async def test_two_forms_lead_to_an_alert(owner: Visitor, receiver: Receiver) -> None:
    second = await owner.post(HERE + "/channel", {**STEP, "name": "my hook", "url": receiver.url})
    assert second.status == 200
    assert second.headers["cache-control"] == "no-store"
    assert 'aria-label="Step 2 of 2"' in second.text
    assert "The test message was accepted" in second.text
    assert receiver.taken[0].json["data"]["title"] == "A test of the channel my hook"
    assert re.search(r"whsec_[A-Za-z0-9+/=]{40,}", second.text)
    # What is sent as it stands is a rule for the new channel.
    chosen = re.search(r'name="channels" value="([^"]+)" checked', second.text)
    assert chosen is not None
    assert 'value="A case opens"' in second.text
    form = {"kind": "case.opened", "name": "A case opens", "least_severity": "low", "channels": chosen[1]}
    assert (await owner.post(HERE + "/rule", form)).location == HERE
    page = await owner.get(HERE)
    assert heading(page) == "1 rule sends alerts to 1 channel"
    assert (
        page.text.index('id="channel-') < page.text.index('id="rule-') < page.text.index("when a case opens.")
    )
    # A second rule of the kind has a name of its own from the start.
    another = await owner.get(HERE + "/rule?channel=" + chosen[1])
    assert 'value="A case opens 2"' in another.text
    assert f'value="{chosen[1]}" checked' in another.text


async def test_a_channel_that_takes_no_test_is_corrected_in_its_step(
    owner: Visitor, receiver: Receiver
) -> None:
    receiver.status = 404
    typed = {**STEP, "name": "my hook", "url": receiver.url + "/wrong"}
    first = await owner.post(HERE + "/channel", typed)
    assert 'aria-label="Step 1 of 2"' in first.text
    assert "nobody answers at this path; check the address (status 404)" in first.text
    assert f'value="{receiver.url}/wrong"' in first.text
    kept = re.search(r'name="id" value="([0-9a-f-]{36})"', first.text)
    assert kept is not None
    assert f"/rule?channel={kept[1]}" in first.text
    receiver.status = 200
    second = await owner.post(HERE + "/channel", {**typed, "id": kept[1], "url": receiver.url})
    assert 'aria-label="Step 2 of 2"' in second.text
    assert len(re.findall(r'name="channels"', second.text)) == 1


@pytest.mark.parametrize(
    ("form", "field", "fault"),
    [
        ({"url": "ftp://example.org"}, "url", "the address must be an https address without credentials"),
        ({"url": "https://example.org", "name": " "}, "name", "name must not be blank"),
        ({"kind": "slack", "secret": "xoxb"}, "secret", "the address of the incoming webhook must be"),
        ({"kind": "pagerduty", "secret": "short"}, "secret", "the integration key is 32 letters and digits"),
        ({"kind": "pagerduty", "secret": "0" * 32, "base_url": "x"}, "base_url", "the address must be"),
        ({"kind": "ntfy", "url": "https://ntfy.sh"}, "url", "the address must end with the topic"),
        ({"kind": "ntfy", "url": "https://ntfy.sh/a", "secret": "é"}, "secret", "the access token must be"),
        ({"kind": "email", "to": "nobody"}, "to", "'nobody' is not an e-mail address"),
    ],
)
async def test_a_refusal_stands_beside_its_field(
    owner: Visitor, form: dict[str, str], field: str, fault: str
) -> None:
    refused = await owner.post(HERE + "/channel", {**STEP, "name": "mine", **form})
    # Without a mail server there is no form of mail: its field is known all the same.
    if form.get("kind") != "email":
        assert re.search(f'id="{field}-hint" class="small bad">{fault}', refused.text, re.IGNORECASE)
    assert refused.status == 400
    for name, typed in form.items():
        assert name in ("kind", "secret", "to") or f'value="{typed}"' in refused.text
    assert "xoxb" not in refused.text


async def test_a_channel_is_made_tested_changed_rotated_and_removed(
    owner: Visitor, receiver: Receiver
) -> None:
    channel_id = await hooked(owner, receiver)
    assert "whsec_" not in (await owner.get(HERE)).text
    tested = await owner.post(HERE + "/channel/test", {"id": channel_id})
    assert "The test message was accepted" in tested.text
    assert receiver.taken[0].json["data"]["title"] == "A test of the channel my hook"
    receiver.status = 404
    failed = await owner.post(HERE + "/channel/test", {"id": channel_id})
    assert "nobody answers at this path; check the address (status 404)" in failed.text
    changed = {"id": channel_id, "kind": "webhook", "name": "other hook", "url": receiver.url + "/new"}
    assert (await owner.post(HERE + "/channel", changed)).status == 303
    assert "other hook" in (await owner.get(HERE)).text
    rotated = await owner.post(HERE + "/channel/rotate", {"id": channel_id})
    assert re.search(r"whsec_[A-Za-z0-9+/=]{40,}", rotated.text)
    assert (await owner.post(HERE + "/channel/remove", {"id": channel_id})).status == 303
    assert "Where should alerts go?" in (await owner.get(HERE)).text
    audit = (await owner.get(BASE + "/settings/audit")).text
    acts = ("update", "test", "rotate", "delete")
    assert [f"alert_channel.{act}" in audit for act in acts] == [True] * 4


async def test_a_rule_says_what_it_would_have_told_and_is_muted_and_removed(
    store: Database, owner: Visitor, receiver: Receiver
) -> None:
    project_id = await project_of(store)
    await opened(store, seen(1), project_id=project_id, at=None)
    channel_id = await hooked(owner, receiver)
    rule_id = await ruled(owner, channel_id, least_severity="low", detectors="tool_error, marks")
    page = await owner.get(HERE)
    assert heading(page) == "1 rule sends alerts to 1 channel"
    assert "when a case opens by tool_error, marks" in page.text
    fired = await owner.get(HERE + "/fired?rule=" + rule_id)
    assert "Would not have fired</b> in the 28 days before this hour" in " ".join(fired.text.split())
    # Of what is known for a shorter while it says since when.
    tried = {"kind": "backup.old", "name": "backups", "channels": channel_id}
    assert "nothing is known yet" in (await owner.post(HERE + "/rule/try", tried)).text
    ago = datetime.now(UTC) - timedelta(days=2)
    await keep_samples(store, {"backup.old": BackupSample(began_at=ago, failed=True)}, ago)
    said = (await owner.post(HERE + "/rule/try", tried)).text
    assert re.search(r"Would have fired 1 time</b> since [A-Z][a-z]{2} \d\d:\d\d: ", said)
    assert (await owner.post(HERE + "/rule/mute", {"id": rule_id, "hours": "8"})).status == 303
    assert "muted until" in (await owner.get(HERE)).text
    assert (await owner.post(HERE + "/rule/mute", {"id": rule_id})).status == 303
    assert "muted until" not in (await owner.get(HERE)).text
    assert (await owner.post(HERE + "/rule/remove", {"id": rule_id})).status == 303
    gone = await owner.get(HERE + "/fired?rule=" + rule_id)
    assert "It is unknown" in gone.text
    audit = (await owner.get(BASE + "/settings/audit")).text
    assert [f"alert_rule.{act}" in audit for act in ("update", "mute", "delete")] == [True] * 3


async def test_what_was_typed_wrong_is_said_and_shown_again(owner: Visitor, receiver: Receiver) -> None:
    channel_id = await hooked(owner, receiver)
    typed = {"kind": "metric", "name": "errors", "channels": channel_id, "dataset": "traces", "value": "much"}
    refused = await owner.post(HERE + "/rule", typed)
    assert refused.status == 400
    assert 'value="much"' in refused.text
    assert 'id="value-hint" class="small bad">Expected a number, got a text' in refused.text
    assert f'value="{channel_id}" checked' in refused.text
    digest = {"kind": "digest", "name": "daily", "channels": channel_id, "at": "8 am"}
    refused = await owner.post(HERE + "/rule", digest)
    assert 'id="at-hint" class="small bad">Expected a time such as 08:00' in refused.text
    tried = await owner.post(HERE + "/rule/try", {**typed, "value": "0", "figure": "count", "least": "0"})
    assert "Would not have fired" in tried.text


METRIC = {
    "kind": "metric", "dataset": "spans", "figure": "count", "bound": "above", "value": "5",
    "window_hours": "1", "least": "0",
}  # fmt: skip


async def stored_filters(store: Database) -> dict[str, Any]:
    [row] = await store.fetch("select params::text as params from alert_rule")
    filters: dict[str, Any] = json.loads(row["params"])["filters"]
    return filters


async def test_all_filters_of_a_rule_stand_in_one_line_and_are_read_back_as_they_were(
    owner: Visitor, receiver: Receiver, store: Database
) -> None:
    filters = {"kind": "tool", "model_id": None, "error_type": "null", "attr.plan": 'the "best" one'}
    # In the order in which the database keeps them.
    line = r'kind:tool model_id:null attr.plan:"the \"best\" one" error_type:"null"'
    form = {**METRIC, "filters": line}
    rule_id = await ruled(owner, await hooked(owner, receiver), **form)
    assert await stored_filters(store) == filters
    page = (await owner.get(f"{HERE}/rule?id={rule_id}")).text
    shown = re.search(r'id="filters" name="filters" type="text" value="([^"]*)"', page)
    assert shown is not None
    assert unescape(shown[1]) == line
    says = (
        'with kind tool and without model_id and with attr.plan the "best" one and with error_type null over'
    )
    assert says in unescape((await owner.get(HERE)).text)
    await ruled(owner, id_of(await owner.get(HERE), "channel"), **form, id=rule_id)
    assert await stored_filters(store) == filters
    await ruled(owner, id_of(await owner.get(HERE), "channel"), **{**form, "filters": ""}, id=rule_id)
    assert await stored_filters(store) == {}


async def test_filters_that_no_line_can_hold_outlive_a_change(
    owner: Visitor, receiver: Receiver, store: Database
) -> None:
    hidden = json.dumps({"attr.b:c": None, "attr.a name": 7})
    form = {**METRIC, "filters": "kind:tool", "untyped_filters": hidden}
    rule_id = await ruled(owner, await hooked(owner, receiver), **form)
    page = unescape((await owner.get(f"{HERE}/rule?id={rule_id}")).text)
    assert "Further filters, set over the API, stay: attr.b:c:null, attr.a name:7." in page
    assert f'name="untyped_filters" value="{json.dumps(json.loads(hidden), separators=(",", ":"))}"' in page
    await ruled(owner, id_of(await owner.get(HERE), "channel"), **{**form, "filters": ""}, id=rule_id)
    assert await stored_filters(store) == json.loads(hidden)
    broken = await owner.post(HERE + "/rule", {**form, "name": "x", "untyped_filters": "{"})
    assert broken.status == 400


async def test_the_page_looks_into_no_payloads_by_itself(owner: Visitor, receiver: Receiver) -> None:
    channel_id = await hooked(owner, receiver)
    for name, line in (("by field", "tenant:acme"), ("by payload", "attr.seat.id:7")):
        form = {**METRIC, "name": name, "channels": channel_id, "filters": line}
        assert (await owner.post(HERE + "/rule", form)).status == 303
    by_field, by_payload = (
        section.partition("</section>")[0]
        for section in (await owner.get(HERE)).text.split('<section class="alert-rule"')[1:]
    )
    assert "by field" in by_field
    assert 'data-module="lazy"' in by_field
    assert 'data-module="lazy"' not in by_payload
    link = re.search(r'href="([^"]+)">Test on past data', by_payload)
    assert link is not None
    rule_id = link[1].partition("rule?id=")[2]
    assert "Would it have fired?" in (await owner.get(f"{HERE}/rule?id={rule_id}")).text
    told = (await owner.get(f"{HERE}/fired?rule={rule_id}")).text
    assert "the rule itself looks every quarter of an hour; attr.seat.id is not a field" in told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("refund", "Filters are fields with their values, such as status:error; “refund” is none"),
        ("kind:tool kind:llm", "The filter kind appears twice"),
        ("nonsense:1", "Unknown field 'nonsense' for dataset 'spans'"),
        (" ".join(f"attr.a{n}:1" for n in range(11)), "At most 10 filters"),
    ],
)
async def test_a_line_that_is_no_filter_is_refused_at_its_field(
    owner: Visitor, receiver: Receiver, line: str, told: str
) -> None:
    channel_id = await hooked(owner, receiver)
    form = {**METRIC, "name": "x", "channels": channel_id, "filters": line}
    refused = await owner.post(HERE + "/rule", form)
    assert refused.status == 400
    assert f'id="filters-hint" class="small bad">{told}' in unescape(refused.text)
    assert f'value="{line}"' in unescape(refused.text)


async def test_a_storm_is_seen_as_one_message_and_a_message_is_sent_once_more(
    store: Database, owner: Visitor, receiver: Receiver
) -> None:
    project_id = await project_of(store)
    await ruled(owner, await hooked(owner, receiver))
    for number in (1, 2, 3):
        await opened(store, seen(number), project_id=project_id)
    assert await gathered(store) == 1
    page = await owner.get(HERE)
    assert "3 cases opened" in page.text
    assert "waiting" in page.text
    lease = await claimed(store)
    await PostgresDeliveryStore(store).failed(lease, Undelivered("its receiver is gone", 410, gone=True))
    page = await owner.get(HERE + "?state=dead")
    assert "its receiver is gone" in page.text
    assert "Off, because the receiver" in page.text
    refused = await owner.post(HERE + "/replay", {"id": str(lease.delivery_id)})
    assert (refused.status, "its channel is gone, or off" in refused.text.lower()) == (409, True)


async def test_several_boxes_of_one_name_are_several_channels(owner: Visitor, receiver: Receiver) -> None:
    first = await hooked(owner, receiver)
    made = await owner.post(HERE + "/channel", {"kind": "ntfy", "name": "phone", "url": receiver.url + "/t"})
    assert made.status == 303
    second = re.findall(r'id="channel-([0-9a-f-]{36})"', (await owner.get(HERE)).text)
    assert len(second) == 2
    form = [("kind", "digest"), ("name", "daily"), *(("channels", one) for one in second)]
    kept = await owner.post(HERE + "/rule", form)  # type: ignore[arg-type]
    assert kept.status == 303
    page = await owner.get(HERE)
    assert re.search(r"Sent to <b>(my hook|phone)</b>, <b>(my hook|phone)</b> each day at 08:00", page.text)
    assert len(re.findall("sends here too", page.text)) == 1
    assert first in second


async def test_rules_without_a_channel_are_counted_apart_and_say_that_nobody_is_notified(
    owner: Visitor, receiver: Receiver
) -> None:
    channel_id = await hooked(owner, receiver)
    await ruled(owner, channel_id)
    assert (await owner.post(HERE + "/rule", {"kind": "digest", "name": "daily"})).status == 303
    page = await owner.get(HERE)
    assert heading(page) == "1 rule sends alerts to 1 channel, 1 rule has no channel"
    lonely = squeezed(page.text.split('id="lonely"')[1])
    assert '<b class="bad">Nobody is notified: the rule has no channel.</b>' in lonely
    assert "</b> It would be sent each day at 08:00 UTC: what happened." in lonely
    assert (await owner.post(HERE + "/channel/remove", {"id": channel_id})).status == 303
    page = await owner.get(HERE)
    assert heading(page) == "Nobody is notified: 2 rules have no channel"
    assert "It would be sent when a case opens." in squeezed(page.text)


def squeezed(text: str) -> str:
    """A text with one blank where markup has several."""
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("form", "field", "fault"),
    [
        ({"detectors": "tool_error bogus"}, "detectors",
         "Unknown detector &#39;bogus&#39;, only tool_error, "),
        ({"kind": "metric", "dataset": "spans", "filters": "status:failed", "value": "1"}, "filters",
         "Nothing meets this filter: status is never &#39;failed&#39;, only ok, error"),
        ({"kind": "metric", "dataset": "spans", "bound": "below", "value": "0"}, "value",
         "No figure is below 0"),
    ],
)  # fmt: skip
async def test_what_never_happens_is_refused_at_its_field(
    owner: Visitor, receiver: Receiver, form: dict[str, str], field: str, fault: str
) -> None:
    typed = {"kind": "case.opened", "name": "mine", "channels": await hooked(owner, receiver), **form}
    refused = await owner.post(HERE + "/rule", typed)
    assert refused.status == 400
    assert f'id="{field}-hint" class="small bad">{fault}' in refused.text


async def test_a_viewer_sees_no_address_and_no_act(here: Replica, owner: Visitor, receiver: Receiver) -> None:
    await ruled(owner, await hooked(owner, receiver))
    viewer = await invited(here, owner, "viewer@example.org", "viewer")
    page = await viewer.get(HERE)
    assert heading(page) == "1 rule sends alerts to 1 channel"
    assert "Send a test" not in page.text
    assert receiver.url + "/" not in page.text
    assert "Add a channel" not in page.text
    assert (await viewer.get(HERE + "/channel")).status == 403


async def test_the_page_that_an_alert_leads_to_shows_its_filters(store: Database, owner: Visitor) -> None:
    params = MetricParams(
        dataset="tools", figure="error_rate", filters={"attr.tenant.id": "acme & co"}, value=0.1
    )
    page = await owner.get(BASE + metric_path(params))
    assert page.status == 200
    assert 'value="kind:tool attr.tenant.id:"acme & co""' in unescape(page.text)
    assert '<option value="error_rate" selected>' in page.text
