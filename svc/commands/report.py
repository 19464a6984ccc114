"""`trace-svc doctor --project`: the ingest doctor's report as text."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.rest.ingest_report import ExporterReport, IngestReport, RefusedSpans, Share
from svc.commands.terminal import printable
from svc.domain.attributes.conventions import PREFIX
from svc.domain.quantities import count, counted, percent
from svc.store.reads.questions.attributes import AttributeField

_MOST_KEYS = 12


def print_report(report: IngestReport) -> None:
    """Print it, exporters with most advice first."""
    print(f"since {report.since}")
    if not report.exporters:
        print("no spans arrived; is the exporter's endpoint right, and does its key belong to this project?")
    for exporter in report.exporters:
        print()
        for line in _exporter(exporter):
            print(printable(line))
    for title, refused in (
        ("rejected on arrival", report.rejected),
        ("dead letters", report.dead_lettered),
    ):
        _print_refused(title, refused)


def print_attributes(fields: Sequence[AttributeField]) -> None:
    """Print what spans can be asked by, and what is no field and why."""
    active = [field for field in fields if field.values and field.state in ("convention", "promoted")]
    others = [field for field in fields if field.state in ("seen", "hidden")]
    if active:
        print("\nattributes that became fields")
        for field in active:
            own_name = f" ({field.field.removeprefix(PREFIX)})" if field.called else ""
            print(printable(f"  {field.name}{own_name}, {counted(field.values or 0, 'value')}"))
    if others:
        print("\nother attributes")
        for field in others[:_MOST_KEYS]:
            reason = "hidden" if field.state == "hidden" else field.reason
            because = f": {reason}" if reason else ""
            print(printable(f"  {field.field}, {counted(field.spans or 0, 'span')}{because}"))
        if len(others) > _MOST_KEYS:
            print(f"  and {len(others) - _MOST_KEYS} more")


def _exporter(exporter: ExporterReport) -> list[str]:
    library = _named(exporter.scope, exporter.scope_version, "unnamed scope")
    sdk = _named(exporter.sdk, exporter.sdk_version, "unknown SDK")
    lines = [
        f"{exporter.service or 'unnamed service'} · {library} · {sdk}",
        f"  last seen   {exporter.last_seen_at}, {counted(exporter.spans, 'span')},"
        f" {count(exporter.looked_into)} checked",
        f"  speaks      {_shares(exporter.dialects) or 'no known LLM convention'}",
    ]
    if exporter.conventions:
        lines.append(f"  conventions {_shares(exporter.conventions)}")
    if exporter.model_calls:
        call_shares = exporter.shares
        pairs = (
            ("model", call_shares.model),
            ("usage", call_shares.usage),
            ("session", call_shares.session),
            ("content", call_shares.content),
        )
        shares = ", ".join(f"{name} {percent(share)}" for name, share in pairs if share is not None)
        lines.append(f"  model calls {exporter.model_calls} checked: {shares}")
    if exporter.unread_attributes:
        unlisted_count = len(exporter.unread_attributes) - _MOST_KEYS
        keys = _shares(exporter.unread_attributes[:_MOST_KEYS]) + (
            f" and {unlisted_count} more" if unlisted_count > 0 else ""
        )
        lines.append(f"  not read    {keys}")
    return lines + [f"  change      {sentence}" for sentence in exporter.advice]


def _print_refused(title: str, refused: list[RefusedSpans]) -> None:
    if refused:
        print(f"\n{title}")
        for row in refused:
            print(printable(f"  {row.spans} spans, last {row.last_seen_at}: {row.reason}"))


def _named(name: str | None, version: str | None, unknown: str) -> str:
    return " ".join(filter(None, (name, version))) or unknown


def _shares(shares: list[Share]) -> str:
    return ", ".join(f"{share.name} {percent(share.share)}" for share in shares)
