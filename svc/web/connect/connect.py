"""Connecting a first program: where to send to and with what key, and four lights that say how far it is.

Ordering: the page itself mints no key, for a browser may fetch it ahead. A form posts for one: by a script as
soon as the page is seen while nothing has arrived, else by its button.

Secrets: the plaintext of a key stands in the answer to its minting, which nobody stores, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from protocol.refusals import FORBIDDEN, UNAVAILABLE, Refusal
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.accounts.projects import DEFAULT_ORG, DEFAULT_PROJECT
from svc.store.reads.onboarding import OnboardingReads, Steps
from svc.web.connect.programs import GROUPS, PROGRAMS
from svc.web.connect.sample import sample_trace
from svc.web.shell.forms import NoFields
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

#: The name of the key of the connect gate (spec, "Key management and audit").
KEY_NAME: Final = "OTLP ingest"

#: What to change, by the cause of a refusal.
ADVICE: Final = {
    "no bearer token": "Send the header Authorization: Bearer and the key. In OTEL_EXPORTER_OTLP_HEADERS a"
    " space is written %20.",
    "unknown key": "The key is not one of ours, or it was revoked. Copy the whole key below: svc_w_ and 22"
    " characters.",
    "a key for feedback alone": "The key is for feedback alone and cannot send traces. Use the key below.",
    "a key for MCP alone": "The key is for MCP alone and cannot send traces. Use the key below.",
    "FORBIDDEN": "The key cannot send: it needs the scope write. Use the key below.",
    "UNSUPPORTED_MEDIA_TYPE": "Export OTLP over http/protobuf or http/json: OTEL_EXPORTER_OTLP_PROTOCOL="
    "http/protobuf.",
    "METHOD_NOT_ALLOWED": "Traces are sent with POST.",
    "BAD_REQUEST": "The body is no OTLP traces request. Metrics and logs are not taken here: point only the"
    " traces exporter at it.",
    "PAYLOAD_TOO_LARGE": "Send smaller batches: OTEL_BSP_MAX_EXPORT_BATCH_SIZE=128.",
    "WRONG_PATH": "An exporter that takes a traces endpoint wants the whole address; one that takes a base"
    " endpoint (OTEL_EXPORTER_OTLP_ENDPOINT) adds /v1/traces by itself.",
    "GRPC_OVER_HTTP": "Use the gRPC port, or send over HTTP: OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf.",
    "UNAVAILABLE": "Nothing to do: the exporter retries automatically.",
    "RATE_LIMITED": "Nothing to do: the exporter retries automatically.",
}


async def connect(visit: Visit) -> Html:
    """The connect page."""
    return await _page(visit, None)


async def post_key(visit: Visit) -> Html | Refusal:
    """A fresh write key, shown this once: as the code blocks with the key in them."""
    store = PostgresKeyStore(visit.means.database, visit.means.accounts.hashers)
    actor = visit.call.caller.label
    minted = await store.create(visit.project.id, KEY_NAME, "write", actor=actor)
    if "x-part" in visit.call.headers:
        return Html("connect/connect_code", _code(visit, minted.plaintext), part=True, secret=True)
    return await _page(visit, minted.plaintext)


async def _page(visit: Visit, key: str | None) -> Html:
    steps = await OnboardingReads(visit.means.database).steps(visit.project.id)
    return Html(
        "connect/connect",
        {**_code(visit, key), **_lights(visit, steps)},
        secret=key is not None,
    )


def _code(visit: Visit, key: str | None) -> dict[str, Any]:
    chosen = visit.query.get("with", "")
    return {
        "programs": PROGRAMS,
        "groups": GROUPS,
        "chosen": chosen if chosen in {program.key for program in PROGRAMS} else PROGRAMS[0].key,
        "endpoint": visit.origin,
        "key": key,
        "grpc_port": visit.process_view.grpc_port,
        "manages": visit.manages,
        "demo_here": (visit.org.slug, visit.project.slug) == (DEFAULT_ORG, DEFAULT_PROJECT),
    }


def _lights(visit: Visit, steps: Steps) -> dict[str, Any]:
    # Refusals of the last minutes are those of all projects.
    refused = visit.process_view.refused() if visit.sees_org and not steps.done else []
    return {
        "steps": steps,
        "endpoint": visit.origin,
        "refused": _explained(refused),
        "demo": visit.process_view.demo.state(),
    }


def _explained(refused: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**refusal, "advice": ADVICE.get(str(refusal["cause"]), "")} for refusal in refused[:5]]


async def lights(visit: Visit) -> Html:
    """How far it is, for a page that watches."""
    steps = await OnboardingReads(visit.means.database).steps(visit.project.id)
    return Html("connect/connect_lights", _lights(visit, steps), part=True)


async def post_sample(visit: Visit) -> Go | Refusal:
    """Send a small trace as an exporter would."""
    refused = await visit.process_view.send(visit.project.id, sample_trace(visit.means.now()))
    return Go(visit.base + "/connect") if refused is None else UNAVAILABLE.saying(refused)


async def post_demo(visit: Visit) -> Go | Refusal:
    """Start what `trace-svc demo` does, unless it runs."""
    if not _code(visit, None)["demo_here"]:
        return FORBIDDEN.saying("the demo goes into the default project")
    await visit.process_view.demo.start()
    return Go(visit.base + "/connect")


PAGES: Final = (
    PageRoute("GET", PROJECT + "/connect", "ORG_VIEW", connect),
    PageRoute("GET", PROJECT + "/connect/lights", "ORG_VIEW", lights),
    PageRoute("POST", PROJECT + "/connect/key", "ORG_MANAGE", post_key, form=NoFields),
    PageRoute("POST", PROJECT + "/connect/sample", "ORG_MANAGE", post_sample, form=NoFields),
    PageRoute("POST", PROJECT + "/connect/demo", "ORG_MANAGE", post_demo, form=NoFields),
)
