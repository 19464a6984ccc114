"""Answers of the query API as tables on a terminal, figures written as the pages write them.

Called by `trace-svc ask`. Reads nothing; what strangers named is printed without what steers a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET

from protocol.rest.answers import (
    Buckets,
    Compared,
    ComparedMeasure,
    ComparedValue,
    Counted,
    FoundPage,
    Measured,
    Ranked,
)
from svc.commands.terminal import minute, print_columns, printable
from svc.domain.quantities import count, duration, money, percent
from svc.domain.queries.measures import COUNT
from svc.store.reads.questions.buckets import bucket_end, bucket_starts

Answer = Counted | Buckets | Ranked | FoundPage | Compared | dict[str, Any]

#: Characters of a cell.
_CELL: Final = 80


def notes_of(answer: Answer) -> Sequence[str]:
    """What an answer says beside its figures."""
    return (answer.get("notes") if isinstance(answer, dict) else answer.notes) or ()


def cut_note(low: datetime, high: datetime, interval: str) -> str | None:
    """Which buckets of a series are shorter than the others, for the range ends within them."""
    starts = bucket_starts(low, high, interval)
    # Nobody misses part of a minute.
    if not starts or interval == "minute":
        return None
    since, until = minute(low.isoformat()), minute(high.isoformat())
    begins_late, ends_early = starts[0] < low, bucket_end(starts[-1], interval) > high
    if len(starts) == 1:
        parts = [f"from {since}"] * begins_late + [f"until {until}"] * ends_early
        return f"This {interval} counts {' '.join(parts)}." if parts else None
    notes = [f"The first {interval} counts from {since}."] * begins_late
    notes += [f"The last {interval} counts until {until}."] * ends_early
    return " ".join(notes) or None


def _figures(
    answer: Counted | Buckets | Ranked,
) -> tuple[tuple[str, ...], Callable[[Measured], tuple[str, ...]]]:
    """The heads of the figures of an answer, and how the cells below them are made of a group."""
    name = answer.measure or COUNT.name
    if name == COUNT.name:
        return ("COUNT",), lambda group: (count(group.count),)
    write = _WRITERS.get(name, count)

    def cells(group: Measured) -> tuple[str, ...]:
        value = group.figure(name)
        shown = value["total"] if isinstance(value, Mapping) else value
        unpriced = () if group.unpriced_spans is UNSET else (count(group.unpriced_spans),)
        return ("-" if shown is None else write(shown), *unpriced, count(group.count))

    unpriced_head = ("UNPRICED",) if name == "cost" else ()
    return (name.upper(), *unpriced_head, "COUNT"), cells


def _money(value: str | float) -> str:
    return money(float(value))


_UNIT_WRITERS: Final[dict[str | None, Callable[[Any], str]]] = {
    None: count,
    "tokens": count,
    "USD": _money,
    "ms": duration,
}
_WRITERS: Final[dict[str, Callable[[Any], str]]] = {
    "cost": _money,
    "error_rate": percent,
    "duration_p50": duration,
    "duration_p95": duration,
    "duration_p99": duration,
}


def _print_count(answer: Counted) -> None:
    heads, cells = _figures(answer)
    print_columns([heads, cells(answer)])


def _print_series(answer: Buckets) -> None:
    heads, cells = _figures(answer)
    if answer.series is UNSET:
        print_columns(
            [
                ("SINCE", *heads),
                *((minute(bucket.bucket_start), *cells(bucket)) for bucket in answer.buckets),
            ]
        )
        return
    rows = [("SINCE", "ALL", *(_value(series.value) for series in answer.series))]
    for index, bucket in enumerate(answer.buckets):
        figures = (cells(bucket)[0], *(cells(series.buckets[index])[0] for series in answer.series))
        rows.append((minute(bucket.bucket_start), *figures))
    print_columns(rows)


def _print_facets(answer: Ranked) -> None:
    if not answer.facets:
        print("No rows match.")
        return
    heads, cells = _figures(answer)
    print_columns(
        [
            (answer.field.upper(), *heads),
            *((_value(facet.value), *cells(facet)) for facet in answer.facets),
        ]
    )


def _value(value: object) -> str:
    text = "(none)" if value is None else str(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _print_rows(answer: FoundPage) -> None:
    if not answer.rows:
        print("No rows match.")
        return
    names = [name for name in answer.rows[0].fields if name in _SHOWN]
    print_columns(
        [
            ("WHEN", *(name.upper() for name in names)),
            *(
                (
                    minute(row.fields.get("started_at") or row.created_at),
                    *(_value(row.fields[name]) for name in names),
                )
                for row in answer.rows
            ),
        ]
    )
    if answer.next_cursor:
        print("There are more: continue with --cursor (--json shows the value).")


#: What is shown of a row on a line; `--json` prints all of it.
_SHOWN: Final = (
    "trace_id", "name", "status", "error_type", "error_message", "classifier_id", "severity", "summary",
)  # fmt: skip


#: The longest list of traces that can be asked for.
TRACES_MOST: Final = 200


def _print_traces(answer: dict[str, Any]) -> None:
    if not answer["traces"]:
        print("No traces match.")
        return
    rows = [("STARTED", "TRACE_ID", "NAME", "TOOK", "COST", "TOKENS", "FAILED SPANS", "INPUT")]
    for trace in answer["traces"]:
        cost, tokens = trace["total_cost"], trace["total_tokens"]
        rows.append(
            (
                minute(trace["started_at"]),
                trace["trace_id"],
                _value(trace["name"]),
                "-" if trace["latency_ms"] is None else duration(trace["latency_ms"]),
                "-" if cost is None else _money(cost),
                "-" if tokens is None else count(tokens),
                count(trace["error_count"]),
                _value(trace["input_preview"] or ""),
            )
        )
    print_columns(rows)
    if answer["next_cursor"]:
        can_be_longer = len(answer["traces"]) < TRACES_MOST
        print(f"There are more: narrow the range{', or ask for more with --limit' if can_be_longer else ''}.")


#: Measures that are means of a trace, in words.
_MEANT: Final = {name: f"mean {name}" for name in ("duration", "cost", "tokens", "spans")}


def _print_comparison(answer: Compared) -> None:
    print_columns(
        [
            ("", "BASELINE", "COMPARISON"),
            ("traces", count(answer.baseline.traces), count(answer.comparison.traces)),
            *(
                (
                    _MEANT.get(measured.measure, measured.measure),
                    *(_measure(measured, value) for value in (measured.baseline, measured.comparison)),
                )
                for measured in answer.measures
            ),
        ]
    )
    print()
    if not answer.baseline.traces or not answer.comparison.traces:
        return
    if not answer.moved:
        print("No value of a field differs beyond what chance explains.")
        return
    rows = [("MOVED MOST", "VALUE", "BASELINE", "COMPARISON", "ODDS", "CHANCE ALONE")]
    for moved in answer.moved:
        shares = (percent(moved.baseline_share), percent(moved.comparison_share))
        odds = count(moved.odds_ratio)
        rows.append((moved.field, _value(moved.value), *shares, odds, _chance(moved.p_value)))
    print_columns(rows)


def _measure(measured: ComparedMeasure, compared: ComparedValue) -> str:
    write = percent if measured.measure.endswith("_rate") else _UNIT_WRITERS[measured.unit]
    return "-" if compared.value is None else write(compared.value)


def _chance(p_value: float) -> str:
    """How often chance alone makes such a difference."""
    return "less than once in 10,000" if p_value < 0.0001 else f"once in {count(round(1 / p_value))}"


def _print_fields(answer: dict[str, Any]) -> None:
    for dataset in answer["datasets"]:
        print(printable(dataset["name"]))
        print("  fields       " + printable(", ".join(dataset["fields"])))
        if dataset["only_filters"]:
            print("  filter only  " + printable(", ".join(dataset["only_filters"])))
        print("  measures     " + ", ".join(dataset["measures"]))


#: By verb, each of its own answer.
PRINTED: Final[dict[str, Callable[[Any], None]]] = {
    "count": _print_count,
    "series": _print_series,
    "facets": _print_facets,
    "search": _print_rows,
    "traces": _print_traces,
    "compare": _print_comparison,
    "fields": _print_fields,
}
