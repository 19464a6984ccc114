"""What the ingest doctor says of an exporter: shares, and what to change, by name.

Owns the thresholds and the sentences. Pure; the store brings the counters, the command line and REST show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from protocol.rest.ingest_report import CallShares, ExporterReport, Share
from protocol.rest.query import timestamp
from svc.domain.dialects import DIALECTS
from svc.domain.exporters.counters import Exporter, SeenSpans
from svc.domain.exporters.renamed_keys import RenamedKey, Subject
from svc.domain.quantities import duration, percent
from svc.domain.spans.service_names import names_an_instance

#: A share below this is worth a word.
_LITTLE: Final = 0.5
#: Of calls without usage, from this on: each makes sums of costs too small.
_LACKING_USAGE: Final = 0.05
#: A clock this far ahead, and spans this late, are worth a word.
_AHEAD_S: Final = 5.0
_LATE_S: Final = 300.0
#: Spans looked into that it takes to speak of shares.
_ENOUGH: Final = 3

_TITLES: Final = {dialect.name: dialect.title for dialect in DIALECTS}

#: Who makes the spans of a scope, where its name says more than the keys: many speak GenAI's alone by now.
_MAKERS: Final = (
    ("opentelemetry.instrumentation.genai", "genai"),
    ("opentelemetry.instrumentation.openai_v2", "genai"),
    ("opentelemetry.instrumentation.google_genai", "genai"),
    ("opentelemetry.instrumentation.", "openllmetry"),
    ("semantic_kernel", "semantic_kernel"),
    ("strands", "strands"),
    ("logfire", "logfire"),
    ("litellm", "litellm"),
    ("openinference.", "openinference"),
    ("com.anthropic.sdk", "anthropic_sdk"),
    ("langfuse", "langfuse"),
    ("pydantic-ai", "pydantic_ai"),
)
#: The scopes of the Vercel AI SDK's two shapes, to the letter.
_VERCEL: Final = frozenset({"gen_ai", "ai"})

#: How to make each dialect's instrumentation write messages onto its spans.
_CONTENT: Final = {
    "openllmetry": "do not set TRACELOOP_TRACE_CONTENT to false",
    "openinference": "do not set OPENINFERENCE_HIDE_INPUTS or OPENINFERENCE_HIDE_OUTPUTS",
    "pydantic_ai": "pass include_content=True to InstrumentationSettings",
    "vercel": "do not set recordInputs or recordOutputs to false in experimental_telemetry",
    "langfuse": "pass input and output to the observation, or do not mask them",
    "claude_code": "set OTEL_LOG_USER_PROMPTS=1 and OTEL_LOG_TOOL_DETAILS=1",
    "anthropic_sdk": "the SDK's own spans never hold them, an instrumentation on top of it does",
    "semantic_kernel": "set SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true and"
    " instrument the SDK below it, for it writes a model's messages on log events alone",
    "genai": "set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY; content on log events never comes with"
    " traces",
}
#: And how to name the session.
_SESSION: Final = {
    "openllmetry": 'call Traceloop.set_association_properties({"session_id": …})',
    "openinference": "wrap the call in openinference.instrumentation.using_session(…)",
    "langfuse": "use propagate_attributes(session_id=…)",
    "strands": 'pass trace_attributes={"session.id": …} to the Agent',
    "logfire": 'set the baggage "session.id" and pass add_baggage_to_attributes=True and a scrubbing callback'
    " that lets it through to logfire.configure",
    "langsmith": "put session_id or thread_id into the run's metadata",
    "mlflow": "set the trace metadata mlflow.trace.session",
    "vercel": "before version 7 put sessionId into experimental_telemetry.metadata",
}
#: What a renamed key takes with it.
_LOST: Final[Mapping[Subject, str]] = {
    "usage": "tokens of model calls are missing, or parts of them, and so is their cost",
    "session": "model calls belong to no session",
    "content": "model calls come without their messages, or parts of them",
    "model": "model calls name no model, or another one, and may have no cost",
}
_SCHEMAS: Final = "https://opentelemetry.io/schemas/"
_ANY_SESSION: Final = "set the span attribute session.id (or gen_ai.conversation.id)"


def exporter_report(
    exporter: Exporter,
    totals: SeenSpans,
    *,
    calls_beside: bool = False,
    renames: Iterable[RenamedKey] = (),
    place: str = "",
) -> ExporterReport:
    """One exporter, with advice. `calls_beside`: another library of its service tells the model calls.

    `renames` are keys that its newest version sends under another name, `place` the options of a command that
    name the project.
    """
    calls = totals.model_calls
    return ExporterReport(
        service=exporter.service or None,
        sdk=exporter.sdk or None,
        sdk_version=exporter.sdk_version or None,
        scope=exporter.scope or None,
        scope_version=exporter.scope_version or None,
        last_seen_at=timestamp(totals.last_seen_at),
        spans=totals.spans,
        looked_into=totals.looked,
        dialects=[
            Share(_TITLES.get(name, name), _part(count, totals.looked))
            for name, count in totals.dialects.most_common()
        ],
        conventions=[
            Share(schema_name(address), _part(count, totals.looked))
            for address, count in totals.schemas.most_common()
        ],
        model_calls=calls,
        shares=CallShares(
            model=_part(totals.with_model, calls) if calls else None,
            usage=_part(totals.with_usage, calls) if calls else None,
            session=_part(totals.with_session, calls) if calls else None,
            content=_part(totals.with_content, calls) if calls else None,
        ),
        unread_attributes=[
            Share(key, _part(count, totals.looked)) for key, count in totals.unread.most_common()
        ],
        least_lag_s=None if totals.lag_s is None else round(totals.lag_s, 3),
        advice=[
            *(rename_text(rename, place) for rename in renames),
            *advice(exporter, totals, calls_beside=calls_beside),
        ],
    )


def schema_name(address: str) -> str:
    """The version of OpenTelemetry's conventions in a schema's address; of another maker's the address."""
    version = address.removeprefix(_SCHEMAS)
    return address if version == address or not version else version.replace("/", " ")


def rename_text(rename: RenamedKey, place: str) -> str:
    """That a key was renamed, what is lost by it, and what to do."""
    since = datetime.fromtimestamp(rename.since_s, UTC)
    return (
        f"since {since:%Y-%m-%d %H:%M} UTC its spans have {rename.new} and no longer {rename.old}, and this"
        f" release does not read the new key: {_LOST[rename.subject]}. Rename it on the way, in a Collector:"
        f' set(attributes["{rename.old}"], attributes["{rename.new}"]); or update to a release that reads it,'
        f" then read what is stored anew: {remap_line(place)}"
    )


def remap_line(place: str) -> str:
    """The command that reads stored spans anew."""
    return " ".join(word for word in ("trace-svc remap", place, "--apply") if word)


def advice(exporter: Exporter, totals: SeenSpans, *, calls_beside: bool = False) -> Iterator[str]:
    """What to change, a sentence each, the most telling first."""
    dialect_names = [name for name, _ in totals.dialects.most_common()]
    dialect = _maker(exporter.scope, dialect_names)
    if totals.lag_s is not None and totals.lag_s < -_AHEAD_S:
        yield (
            f"its clock runs at least {duration(-totals.lag_s * 1000)} ahead: synchronise it (NTP), or its"
            " traces lie in the future"
        )
    elif totals.lag_s is not None and totals.lag_s > _LATE_S:
        yield (
            f"no span came sooner than {duration(totals.lag_s * 1000)} after its end: its clock is behind, or"
            " old spans are sent"
        )
    if not exporter.service or exporter.service.startswith("unknown_service"):
        yield "its service has no name: set OTEL_SERVICE_NAME"
    elif names_an_instance(exporter.service):
        yield (
            f"its service is called as its container, {exporter.service}, which changes with every restart:"
            " set OTEL_SERVICE_NAME"
        )
    if totals.looked >= _ENOUGH and not dialect_names and not calls_beside:
        yield (
            "none of its spans speaks of models: fine for a web framework, else instrument the library that"
            " calls them"
        )
    if totals.looked >= _ENOUGH and dialect_names and not totals.model_calls and not calls_beside:
        yield (
            "no model span is made by this instrumentation, so model, usage and cost are missing: instrument"
            " the SDK that calls the model as well (openinference-instrumentation-openai,"
            " opentelemetry-instrumentation-anthropic and their like)"
        )
    if totals.model_calls < _ENOUGH:
        return
    if _little(totals.with_model, totals.model_calls):
        yield "model calls without a model have no price: set gen_ai.request.model"
    if (lacking := totals.without_usage / totals.model_calls) >= _LACKING_USAGE:
        yield (
            f"{percent(lacking)} of model calls report no tokens, so they cost nothing here: for"
            " streams of OpenAI's API pass"
            ' stream_options={"include_usage": true}; else set gen_ai.usage.input_tokens and output_tokens'
        )
    if _little(totals.with_content, totals.model_calls):
        remedy = _CONTENT.get(dialect, "set gen_ai.input.messages and gen_ai.output.messages")
        yield f"model calls come without their messages: {remedy}"
    if _little(totals.with_session, totals.model_calls):
        session_remedy = _SESSION.get(dialect)
        yield "model calls belong to no session: " + (
            f"{session_remedy}, or {_ANY_SESSION}" if session_remedy else _ANY_SESSION
        )


def _maker(scope: str, spoken: list[str]) -> str:
    """The dialect whose instrumentation made the spans."""
    if scope in _VERCEL:
        return "vercel"
    for start, dialect in _MAKERS:
        if scope.startswith(start):
            return dialect
    # GenAI's keys are lent to many: whoever has keys of their own is whom to ask.
    return next((name for name in spoken if name != "genai"), spoken[0] if spoken else "")


def worst_first(reports: list[ExporterReport]) -> list[ExporterReport]:
    """Exporters with most advice first, then the latest."""
    latest = sorted(reports, key=lambda report: report.last_seen_at, reverse=True)
    return sorted(latest, key=lambda report: -len(report.advice))


def _part(count: int, total: int) -> float:
    return round(count / max(total, 1), 3)


def _little(count: int, total: int) -> bool:
    return count < total * _LITTLE
