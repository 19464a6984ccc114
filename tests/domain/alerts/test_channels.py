"""Laws of channels: what each makes of a message, that it is bounded, and that others can read it."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from protocol.alerts import (
    CHANNEL_KINDS,
    ITEMS_NAMED,
    TEXT_CHARS,
    TITLE_CHARS,
    AlertItem,
    AlertMessage,
    ChannelKind,
    ChannelSecret,
    HttpSending,
    MailSending,
)
from svc.domain.alerts.channels.table import CHANNELS, fault_of, name_of, read_fields, written
from svc.domain.alerts.channels.webhook import secret_of
from svc.domain.alerts.params import BadParams

ID = UUID(int=7)
ORIGIN = "https://traces.example.org"
SIGNING = secret_of(bytes(range(32)))
KEYS: dict[ChannelKind, str | None] = {
    "webhook": SIGNING,
    "slack": "https://hooks.slack.example/T/B/x",
    "pagerduty": "a" * 32,
    "ntfy": "tk_x",
    "email": None,
}
PARAMS: dict[ChannelKind, dict[str, Any]] = {
    "webhook": {"url": "https://example.org/in"},
    "slack": {},
    "pagerduty": {},
    "ntfy": {"url": "https://ntfy.example.org/my-topic"},
    "email": {"to": ["ann@example.org", "bob@example.org"]},
}


def item(number: int = 1, text: str = "It fails in 9 % of traces.", title: str = "fails") -> AlertItem:
    return AlertItem(
        subject=f"C-{number}",
        title=title,
        text=text,
        severity="high",
        path=f"/cases/C-{number}",
        occurred_at="2026-11-01T00:00:00.000000Z",
    )


def message(**more: Any) -> AlertMessage:
    plain: dict[str, Any] = {
        "kind": "case.opened",
        "rule": "new cases",
        "org": "default",
        "project": "shop",
        "state": "told",
        "title": "Opened: C-1 fails",
        "severity": "high",
        "dedup_key": "default/shop/C-1",
        "path": "/cases/C-1",
        "occurred_at": "2026-11-01T00:00:00.000000Z",
        "items": (item(),),
    }
    return AlertMessage(**(plain | more))


def sending(
    kind: ChannelKind,
    what: AlertMessage,
    key: ChannelSecret | None = None,
    now: datetime | None = None,
    **more: Any,
) -> Any:
    secret = KEYS[kind]
    key = key or (None if secret is None else ChannelSecret(secret=secret))
    return written(kind, PARAMS[kind] | more, key, what, ID, now or datetime.now(UTC), ORIGIN)


def body(kind: ChannelKind, what: AlertMessage, **more: Any) -> Any:
    return msgspec.json.decode(sending(kind, what, **more).body)


def test_every_kind_of_channel_has_its_file_and_line() -> None:
    assert tuple(CHANNELS) == CHANNEL_KINDS == tuple(KEYS)


def test_a_webhook_is_what_the_standard_says() -> None:
    sent = sending("webhook", message())
    assert isinstance(sent, HttpSending)
    said = Webhook(SIGNING).verify(sent.body, dict(sent.headers))
    assert (said["type"], sent.headers["webhook-id"]) == ("case.opened", name_of(ID))
    assert said["data"]["link"] == ORIGIN + "/orgs/default/projects/shop/cases/C-1"
    assert said["data"]["items"][0]["link"] == said["data"]["link"]
    for wrong in (sent.body[:-1], sent.body + b" "):
        with pytest.raises(WebhookVerificationError):
            Webhook(SIGNING).verify(wrong, dict(sent.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(SIGNING).verify(sent.body, {**sent.headers, "webhook-id": "msg_other"})


def test_both_secrets_sign_for_a_day_after_a_rotation_and_then_one() -> None:
    new = secret_of(b"n" * 32)
    now = datetime.now(UTC)
    for until, old_signs in ((now + timedelta(seconds=1), True), (now, False)):
        key = ChannelSecret(secret=new, previous=SIGNING, previous_until=until)
        sent = sending("webhook", message(), key, now)
        Webhook(new).verify(sent.body, dict(sent.headers))
        if old_signs:
            Webhook(SIGNING).verify(sent.body, dict(sent.headers))
        else:
            with pytest.raises(WebhookVerificationError):
                Webhook(SIGNING).verify(sent.body, dict(sent.headers))


def test_slack_gets_blocks_in_which_nothing_is_markup_of_others() -> None:
    hostile = item(title="<!channel> & <https://evil.example|click>")
    said = body("slack", message(items=(hostile,), title="<!here> fails"))
    assert said["text"] == "&lt;!here&gt; fails"
    [section] = [block for block in said["blocks"] if block["type"] == "section"]
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;" in section["text"]["text"]
    assert sending("slack", message()).url == KEYS["slack"]


def test_pagerduty_opens_one_incident_a_subject_and_closes_it_by_the_same_key() -> None:
    opened = body("pagerduty", message())
    assert (opened["event_action"], opened["dedup_key"]) == ("trigger", "default/shop/C-1")
    assert (opened["payload"]["severity"], opened["routing_key"]) == ("critical", "a" * 32)
    for over in (message(state="over"), message(kind="case.resolved")):
        closed = body("pagerduty", over)
        assert (closed["event_action"], closed["dedup_key"]) == ("resolve", "default/shop/C-1")
    europe = sending("pagerduty", message(), base_url="https://events.eu.pagerduty.com/")
    assert europe.url == "https://events.eu.pagerduty.com/v2/enqueue"


def test_ntfy_is_published_as_json_to_the_root_of_its_server() -> None:
    sent = sending("ntfy", message())
    assert (sent.url, sent.headers["authorization"]) == ("https://ntfy.example.org/", "Bearer tk_x")
    said = msgspec.json.decode(sent.body)
    assert (said["topic"], said["priority"], said["title"]) == ("my-topic", 5, "Opened: C-1 fails")
    assert said["click"].endswith("/cases/C-1")


def test_a_mail_has_one_line_of_subject_and_the_link_in_its_text() -> None:
    sent = sending("email", message(title="Opened:\r\nBcc: everybody@example.org"))
    assert isinstance(sent, MailSending)
    assert sent.subject == "[shop] Opened: Bcc: everybody@example.org"
    assert ORIGIN + "/orgs/default/projects/shop/cases/C-1" in sent.text
    assert sent.message_id == name_of(ID)


@given(st.text(max_size=TITLE_CHARS), st.text(max_size=TEXT_CHARS), st.sampled_from(CHANNEL_KINDS))
def test_whatever_a_title_holds_a_message_can_be_written_and_stays_small(
    title: str, text: str, kind: ChannelKind
) -> None:
    title = title.encode(errors="replace").decode()
    text = text.encode(errors="replace").decode()
    items = tuple(item(n, text, title) for n in range(ITEMS_NAMED))
    sent = sending(kind, message(title=title, items=items, more=480))
    if isinstance(sent, MailSending):
        assert not re.search(r"[\r\n]", sent.subject)
        return
    assert len(sent.body) < 256 * 1024
    said = msgspec.json.decode(sent.body)
    if kind == "slack":
        assert len(said["blocks"]) <= 50
        texts = [block["text"]["text"] for block in said["blocks"] if block["type"] == "section"]
        assert all(len(one) <= 3_000 for one in texts)
        assert len(said["blocks"][0]["text"]["text"]) <= 150
    if kind == "ntfy":
        assert len(said["message"].encode()) <= 4_096
    if kind == "pagerduty":
        assert len(said["payload"]["summary"]) <= 1_024


@pytest.mark.parametrize(
    ("kind", "params", "secret", "told"),
    [
        ("webhook", {"url": "http://ann:pw@example.org"}, None, "without credentials"),
        ("webhook", {"url": "file:///etc/passwd"}, None, "https address"),
        ("webhook", {"url": "https://example.org"}, "whsec_short", "24 to 64 bytes"),
        ("webhook", {"url": "https://example.org"}, b64encode(b"x" * 32).decode(), "24 to 64 bytes"),
        ("slack", {}, None, "needs its address of the incoming webhook"),
        ("slack", {}, "nonsense", "the address of the incoming webhook must be an https address without "),
        (
            "webhook",
            {"url": "nonsense"},
            None,
            "credentials, or an http address within SVC_ALERT_ALLOWED_NETWORKS",
        ),
        ("pagerduty", {}, "too short", "32 letters and digits"),
        ("ntfy", {"url": "https://ntfy.sh"}, None, "must end with the topic"),
        ("email", {"to": ["nobody"]}, None, "'nobody' is not an e-mail address"),
        ("email", {"to": ["a@b.c"]}, "secret", "email has no secret"),
    ],
)
def test_what_cannot_be_sent_to_is_refused_in_words(
    kind: ChannelKind, params: dict[str, Any], secret: str | None, told: str
) -> None:
    fault = fault_of(kind, read_fields(kind, params), secret, kept=False, mails=True)
    assert fault is not None
    assert told in fault


def test_fields_that_a_channel_does_not_have_are_refused_by_name() -> None:
    with pytest.raises(BadParams, match=r"unknown field `host`; it takes: url$"):
        read_fields("webhook", {"url": "https://example.org", "host": "x"})
    with pytest.raises(BadParams, match=r"to"):
        read_fields("email", {"to": []})
    with pytest.raises(BadParams, match=r"to"):
        read_fields("email", {"to": ["a@b.c"] * 21})


def test_no_repr_shows_a_secret() -> None:
    for kind in CHANNEL_KINDS:
        sent = sending(kind, message())
        assert KEYS[kind] is None or str(KEYS[kind]) not in repr(sent), kind
    assert SIGNING not in repr(ChannelSecret(secret=SIGNING))
