"""`secret_leak`: a model or a tool puts a secret into what it says.

Owns: where secrets are looked for, and how much a sighting weighs there. In what a model answers a form of
the high band speaks for itself; in what tools are given or return, where applications hand each other keys
all day, and when the user said it first, every form is low. Pure; what is observed is the form, the first
characters, the length and the mark of a secret, never the secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from svc.domain.detect.detectors.base import (
    WITNESSES,
    Detector,
    MeasureName,
    Observation,
    ObserverContext,
    site,
    slot_of,
)
from svc.domain.detect.detectors.settled_trace import CALLED, SettledTrace, SpanTexts, TracedSpan
from svc.domain.detect.secrets.search import FoundSecret, find_secrets, may_hold_secrets


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """One failing unit for each call site and form; its signature lists what may be told of the secrets."""
    if not context.secret_key or not may_hold_secrets(_scanned_texts(trace)):
        return
    groups: dict[tuple[MeasureName, str, str], tuple[int, dict[bytes, None], dict[str, None]]] = {}
    for row in trace.spans:
        if (texts := trace.texts.get(row.span_id)) is None:
            continue
        for secret, high in _secrets(row, texts, context.secret_key, trace):
            measure: MeasureName = "secret_high" if high else "secret_low"
            key = (measure, site(row.call_site_id), secret.pattern)
            _, spans, signatures = groups.setdefault(key, (slot_of(row.started_at), {}, {}))
            spans[row.span_id] = signatures[secret.signature] = None
    for (measure, subject, pattern), (slot, spans, signatures) in groups.items():
        yield Observation(
            measure,
            subject,
            slot,
            failed=True,
            detail=pattern,
            witnesses=tuple(spans)[:WITNESSES],
            signature=",".join(list(signatures)[:WITNESSES]),
        )


def _scanned_texts(trace: SettledTrace) -> list[str]:
    """Whatever `_secrets` looks at."""
    candidates: list[str | None] = []
    for texts in trace.texts.values():
        candidates += (texts.arguments, texts.result, texts.said)
        candidates += [call.arguments for call in texts.calls]
    return [candidate for candidate in candidates if candidate]


def _secrets(
    row: TracedSpan, texts: SpanTexts, key: bytes, trace: SettledTrace
) -> Iterator[tuple[FoundSecret, bool]]:
    if row.kind in CALLED:
        for payload in (texts.arguments, texts.result):
            yield from ((secret, False) for secret in find_secrets(payload or "", key))
        return
    for call in texts.calls:
        yield from ((secret, False) for secret in find_secrets(call.arguments or "", key))
    answer = texts.said or ""
    for secret in find_secrets(answer, key):
        value = answer.encode("utf-8", "replace")[secret.start : secret.end].decode("utf-8", "replace")
        yield secret, secret.band == "high" and not _is_in_input(value, trace)


def _is_in_input(value: str, trace: SettledTrace) -> bool:
    return any(value in texts.given() for texts in trace.texts.values())


SECRET_LEAK: Final = Detector(
    name="secret_leak",
    sentence="A model or a tool puts a key, a token or a password into its output.",
    grain="span",
    engine="event",
    measures=("secret_high", "secret_low"),
    observe=observe,
)
