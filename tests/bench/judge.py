"""`make bench-judge FOLDER=…`: a labelled set through the real door, and how well what is said fits it.

    python -m tests.bench.judge [FOLDER]

FOLDER has a folder for each application, with `traces.jsonl` (a request in OTLP JSON a line) and
`labels.json` (a list of `{trace_id, span_id, category}`); without one, the example of
`tests.bench.judge_example` is judged. All is sent to a service of its own; once it is counted, marks and
findings are read over MCP. Prints a row for every mark, one for at most five statements a trace, and always
the baseline that says two categories of every model call. Each application is judged by rules whose
categories were learned from the others.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.postgres.database import Database
from tests.bench import judge_example
from tests.bench.judge_scores import (
    LIMIT,
    AppTraces,
    Label,
    Row,
    Statement,
    baseline,
    judged,
    learned,
    limited,
    table,
)
from tests.e2e.mcp import asked
from tests.service import Service, measured
from tests.store.spans.test_writing import fetch

PAGE: Final = 100
#: After so long without an end something is wrong.
PATIENCE_S: Final = 1_800.0


def sent(service: Service, folder: Path) -> set[str]:
    """Send the traces of an application; which they are."""
    traces: set[str] = set()
    for line in (folder / "traces.jsonl").read_text().splitlines():
        request = json.loads(line)
        answer = service.send(line.encode(), Content_Type="application/json")
        assert answer.status_code == 200, answer.text
        traces |= {
            span["traceId"]
            for resource in request["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        }
    return traces


def applications(folder: Path) -> list[Path]:
    """The folders of the applications of a set."""
    return sorted(one for one in folder.iterdir() if (one / "labels.json").exists())


def labels_of(folder: Path) -> tuple[Label, ...]:
    """What people labelled in the traces of an application."""
    return tuple(Label(**label) for label in json.loads((folder / "labels.json").read_text()))


async def counted(service: Service, traces: int) -> None:
    """Wait until all of them are counted and judged as far as they can be."""

    async def done(database: Database) -> bool:
        [row] = await fetch(
            database,
            "select (select count(*) from trace_fold) as folded, exists (select from fold_due) as due,"
            " (select count(*) from judge_state where holder is not null) as held,"
            " (select max(touched_since) < clock_timestamp() - interval '5 s' from fold_state) as quiet",
        )
        return row["folded"] >= traces and not row["due"] and not row["held"] and row["quiet"]

    async with open_store(read_settings(dict(service.env))) as store:
        with trio.fail_after(PATIENCE_S):
            while not await done(store.database):  # noqa: ASYNC110 - it happens elsewhere
                await trio.sleep(0.5)


def pages(service: Service, tool: str, key: str, **arguments: Any) -> Iterator[dict[str, Any]]:
    """All rows that a tool lists."""
    cursor: str | None = None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        answer = asked(service, tool, limit=PAGE, **arguments, **more)
        yield from answer[key]
        if (cursor := answer.get("next_cursor")) is None:
            return


def statements(service: Service) -> list[Statement]:
    """What marks and findings say: at the model call behind a mark, else where it shows; at a witness."""
    said = []
    for row in pages(service, "query_search", "rows", dataset="classifier_events"):
        fields = row["fields"]
        span_id = fields["cause_span_id"] or fields["subject_span_id"]
        if fields["subject_trace_id"] and span_id:
            said.append(Statement(fields["subject_trace_id"], span_id, fields["classifier_id"]))
    for finding in asked(service, "list_findings")["findings"]:
        evidence = pages(service, "get_finding_evidence", "refs", finding_id=finding["id"], role="witness")
        said += [
            Statement(ref["trace_id"], ref["span_id"], f"finding of {finding['detector']}")
            for ref in evidence
            if ref.get("trace_id") and ref.get("span_id")
        ]
    return said


def model_calls(service: Service) -> list[tuple[str, str]]:
    """Every model call, as trace and span."""
    return [(row["trace_id"], row["span_id"]) for row in pages(service, "list_spans", "spans", kind="llm")]


def compared(apps: Sequence[AppTraces], said: Sequence[Statement]) -> Iterator[tuple[str, Row]]:
    """The figures of each application, judged by what the others teach."""
    of_app = {app.name: [one for one in said if one.trace_id in set(app.traces)] for app in apps}
    for app in apps:
        others = [other for other in apps if other is not app]
        lesson = learned((other, of_app[other.name]) for other in others)
        own = of_app[app.name]
        yield app.name, baseline(app, lesson)
        yield app.name, judged(app, "all that is said", own, lesson)
        yield app.name, judged(app, f"at most {LIMIT} a trace", limited(own, lesson), lesson)
        for rule in sorted({one.rule for one in own}):
            yield app.name, judged(app, f"`{rule}`", [one for one in own if one.rule == rule], lesson)


def replayed(folder: Path) -> tuple[list[AppTraces], list[Statement], float]:
    """The applications of a set, what is said of them, and the seconds that it took."""
    with measured() as service:
        began_s = time.monotonic()
        folders = applications(folder)
        traces = {one.name: sent(service, one) for one in folders}
        trio.run(counted, service, sum(map(len, traces.values())))
        said = statements(service)
        took_s = time.monotonic() - began_s
        calls = model_calls(service)
        apps = [
            AppTraces(
                one.name,
                tuple(sorted(traces[one.name])),
                tuple(call for call in calls if call[0] in traces[one.name]),
                labels_of(one),
            )
            for one in folders
        ]
    return apps, said, took_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.judge")
    parser.add_argument("folder", type=Path, nargs="?", help="a labelled set; the example without one")
    folder: Path | None = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as made:
        if folder is None:
            judge_example.write(Path(made))
        apps, said, took_s = replayed(folder or Path(made))
    traces = sum(len(app.traces) for app in apps)
    print(f"### {traces} traces of {len(apps)} applications, {sum(len(app.labels) for app in apps)} labels\n")
    print(table(compared(apps, said)))
    print(f"\n{took_s / max(traces, 1):.2f} s and $0 a trace; 95 % intervals by bootstrap over traces.")


if __name__ == "__main__":
    main()
