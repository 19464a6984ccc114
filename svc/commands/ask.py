"""`trace-svc ask count | series | facets | search | traces | compare | fields`: questions about stored data.

The questions of the query API, with the same names and the same answers (`--json` prints those); figures are
written as the pages write them. Times are when things happened unless `--by arrival` is given. Never writes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, cast, get_args

import attrs

from protocol.operator import OperatorError
from protocol.refusals import Refused
from protocol.rest.query import (
    SEARCH_LIMIT_DEFAULT,
    SEARCH_LIMIT_MAX,
    SERIES_DEFAULT,
    SERIES_MAX,
    TOP_N_DEFAULT,
    TOP_N_MAX,
    FilterValue,
    instant,
)
from svc.application.open_store import open_store
from svc.commands.asked import PRINTED, TRACES_MOST, Answer, cut_note, notes_of
from svc.commands.target import name_project, named_project, read_filters, refusal_sentence
from svc.commands.terminal import offer_json, print_json, printable
from svc.config.table import Settings
from svc.domain.calendar import day_of
from svc.domain.queries.datasets import DATASETS, EVENT_TIME, SPANS
from svc.domain.queries.measures import MEASURES
from svc.domain.spans.span import Status
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.reads.questions.attributes import promoted_fields
from svc.store.reads.questions.buckets import INTERVALS
from svc.store.reads.questions.nothing_found import reasons
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import Question, ask, checked_filters
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_filter import TraceFilter, of_one_span
from svc.store.reads.traces.traces import TraceRank, TraceReads
from svc.store.reads.usage.compare import CompareStore
from svc.store.reads.usage.compared_sides import Side, side_of

_SPAN_OF_TIME: Final = re.compile(r"(\d{1,5})(m|h|d|w)")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
#: Words for a midnight in UTC, by how many days ago it was.
_MIDNIGHTS: Final = {"today": 0, "yesterday": 1}
#: Traces that are listed, and at the most.
TRACES: Final = 20
_EXAMPLES: Final = """examples:
  what did each model cost in the last week?
    trace-svc ask facets model_id --measure cost --last 7d
  which release fails most?
    trace-svc ask facets release --measure error_rate --last 7d
  errors of one tool, hour by hour
    trace-svc ask series hour --where tool=search --where status=error --last 24h
  the slowest traces of the last hour
    trace-svc ask traces --sort latency --last 1h
  which traces failed yesterday?
    trace-svc ask traces --failed --from yesterday --to today
  what is different about traces in which something failed?
    trace-svc ask compare --with status=error --last 24h
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    parser.epilog = _EXAMPLES
    verbs = parser.add_subparsers(dest="verb", metavar="verb", required=True)
    for word, sentence, offers in (
        ("count", "count or sum up", (_offer_measure, _offer_rows, _offer_range)),
        ("series", "the same over time", (_offer_buckets, _offer_measure, _offer_rows, _offer_range)),
        (
            "facets",
            "the same for each value of a field, largest first",
            (_offer_values, _offer_measure, _offer_rows, _offer_range),
        ),
        ("search", "rows that contain a text, newest first", (_offer_text, _offer_rows, _offer_range)),
        ("traces", "traces, newest or largest first", (_offer_traces, _offer_range)),
        ("compare", "what differs between two groups of traces", (_offer_sides, _offer_range)),
        ("fields", "the fields and measures of each dataset", ()),
    ):
        verb = verbs.add_parser(word, help=sentence)
        for offer in (*offers, name_project, offer_json):
            offer(verb)


def _offer_number(verb: argparse.ArgumentParser, option: str, what: str, default: int, most: int) -> None:
    def within(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() else 0
        if not 1 <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {most}")
        return number

    help_text = f"{what}, at most {most} (default: %(default)s)"
    verb.add_argument(option, type=within, metavar="N", default=default, help=help_text)


def _offer_buckets(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("interval", choices=INTERVALS, help="the size of a bucket: %(choices)s")
    verb.add_argument("--group-by", metavar="FIELD", help="one column for each of its largest values")
    _offer_number(verb, "--top", "how many columns", SERIES_DEFAULT, SERIES_MAX)


def _offer_values(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("field", help="the field; `ask fields` lists them")
    _offer_number(verb, "--top", "how many", TOP_N_DEFAULT, TOP_N_MAX)
    verb.add_argument("--ascending", action="store_true", help="smallest first")


def _offer_text(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("text", nargs="?", help="text to search for; without it, all rows")
    _offer_number(verb, "--limit", "how many", SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX)
    verb.add_argument("--cursor", help="continue after a page: the next_cursor that `--json` shows")


def _offer_traces(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("text", nargs="?", help="text to search for; without it, all traces")
    verb.add_argument("--failed", action="store_true", help="only traces with a failed span")
    verb.add_argument(
        "--sort",
        choices=("started_at", *get_args(TraceRank)),
        default="started_at",
        help="%(choices)s; all but the first need a range",
    )
    _offer_number(verb, "--limit", "how many", TRACES, TRACES_MOST)


def _offer_sides(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--with",
        dest="other",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="compare traces with a span that has all these values with all others; --where narrows both "
        "sides, and is the other side's value of a field that --with names too",
    )
    verb.add_argument(
        "--since", metavar="TIME", help="compare traces that started since then with earlier ones"
    )


def _offer_measure(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--measure", choices=MEASURES, help="what to compute besides the count")


def _offer_rows(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--dataset",
        choices=DATASETS,
        default=SPANS.name,
        help="which rows to ask about (default: %(default)s)",
    )
    verb.add_argument(
        "--by",
        choices=("start", "arrival"),
        help="whether the range is about when things happened or when they arrived (default: start, if the"
        " rows have it)",
    )


def _offer_range(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="only rows with this value; `FIELD=` asks for rows without a value (not of traces); can be"
        " repeated",
    )
    verb.add_argument("--last", metavar="SPAN", help="a time until now: 30m, 24h, 7d or 4w")
    verb.add_argument(
        "--from", dest="low", metavar="TIME", help="ISO 8601, or today or yesterday (in UTC), inclusive"
    )
    verb.add_argument("--to", dest="high", metavar="TIME", help="the same, exclusive")


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Ask and print. Raises `OperatorError` for what cannot be asked, `Outage`."""
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        try:
            timed = _with_times(arguments)
            answer = await _ANSWERS[arguments.verb](store.database, project.id, timed)
        except Refused as refused:
            raise OperatorError(refusal_sentence(refused)) from None
    if arguments.json:
        print_json(answer)
        return
    PRINTED[arguments.verb](answer)
    for note in notes_of(answer):
        print(printable(note))
    if arguments.verb == "series":
        if (cut := cut_note(timed.low, timed.high, arguments.interval)) is not None:
            print(cut)
        if arguments.low is None and arguments.last is None:
            print("These are 24 hours; --last or --from names another range.")


# --- asking -----------------------------------------------------------------------------------------------


async def _count(database: Database, project_id: int, arguments: argparse.Namespace) -> Answer:
    return await QueryStore(database).count(_question(project_id, arguments))


async def _series(database: Database, project_id: int, arguments: argparse.Namespace) -> Answer:
    return await QueryStore(database).timeseries(
        _question(project_id, arguments), arguments.interval, arguments.group_by, arguments.top
    )


async def _facets(database: Database, project_id: int, arguments: argparse.Namespace) -> Answer:
    question, top = _question(project_id, arguments), arguments.top
    # One more tells whether there are more; as JSON it is the answer of the API.
    read = top if arguments.json else top + 1
    answer = await QueryStore(database).facets(question, arguments.field, read, ascending=arguments.ascending)
    if len(answer.facets) > top:
        more = "narrow the rows with --where" if top == TOP_N_MAX else f"ask for them with --top {TOP_N_MAX}"
        answer.notes = [f"There are more: {more}.", *notes_of(answer)]
        answer.facets = answer.facets[:top]
    return answer


async def _search(database: Database, project_id: int, arguments: argparse.Namespace) -> Answer:
    return await QueryStore(database).search(
        _question(project_id, arguments), arguments.text, None, arguments.limit, arguments.cursor
    )


async def _traces(database: Database, project_id: int, arguments: argparse.Namespace) -> Answer:
    low, high = arguments.low, arguments.high
    filters = read_filters(arguments.where)
    asked = TraceFilter(
        status=_own_status(filters),
        low=low,
        # The range of traces holds both its ends.
        high=None if high is None else high - timedelta(microseconds=1),
        q=arguments.text,
        failed_spans=arguments.failed or None,
    )
    if filters:
        asked = attrs.evolve(asked, **of_one_span(filters))
    reads = TraceReads(database, SpanReads(database))
    if arguments.sort == "started_at":
        answer = await reads.page(project_id, asked, limit=arguments.limit, cursor=None)
    elif low is None:
        raise OperatorError("--sort needs a range, such as --last 7d")
    else:
        answer = await reads.largest(project_id, asked, arguments.sort, limit=arguments.limit)
    if not answer["traces"]:
        checked = checked_filters(SPANS, filters)
        notes = await reasons(database, project_id, SPANS, checked, text=asked.q)
        answer["notes"] = [*notes, *answer.get("notes", [])]
    return answer


async def _compare(database: Database, project_id: int, arguments: argparse.Namespace) -> Answer:
    low, high = arguments.low, arguments.high
    if arguments.since is None and not arguments.other:
        raise OperatorError(
            "which traces? --with status=error selects those in which something failed, --since "
            "2026-11-21T09:30:00Z shows what changed then"
        )
    where, other = read_filters(arguments.where), read_filters(arguments.other)
    until, since = (high, low) if arguments.since is None else (arguments.since, arguments.since)
    sides = (_side(low, until, where), _side(since, high, {**where, **other}))
    return await CompareStore(database).compare(project_id, *sides)


async def _fields(database: Database, project_id: int, _arguments: argparse.Namespace) -> Answer:
    promoted = await promoted_fields(database, project_id)
    return {
        "datasets": [
            {
                "name": dataset.name,
                "fields": [field.name for field in dataset.fields if field.facetable]
                + (promoted if dataset.has_attributes else []),
                "only_filters": [field.name for field in dataset.fields if not field.facetable],
                "measures": list(dataset.measures),
            }
            for dataset in DATASETS.values()
        ]
    }


def _side(low: datetime | None, high: datetime | None, filters: dict[str, FilterValue]) -> Side:
    """A population: traces with a span that has all values; `trace.status` is the trace's own."""
    filters = dict(filters)
    status = _own_status(filters)
    return side_of(low, high, filters, status, None)


def _own_status(filters: dict[str, FilterValue]) -> Status | None:
    """The trace's own status, taken from among filters of its spans."""
    status = filters.pop("trace.status", None)
    if status not in (None, "ok", "error"):
        raise OperatorError("trace.status is ok or error")
    return cast(Status | None, status)


def _question(project_id: int, arguments: argparse.Namespace) -> Question:
    dataset = DATASETS[arguments.dataset]
    by = EVENT_TIME if dataset.has_event_time and arguments.by != "arrival" else None
    if arguments.by == "start" and not dataset.has_event_time:
        raise OperatorError(f"{dataset.name} has only one time, {dataset.time_column}: leave out --by")
    return ask(
        project_id,
        dataset.name,
        (arguments.low, arguments.high),
        read_filters(arguments.where),
        by=by,
        measure=getattr(arguments, "measure", None),
    )


def _with_times(arguments: argparse.Namespace) -> argparse.Namespace:
    """The same with instants for the words of its range, or None at an open end."""
    if arguments.verb == "fields":
        return arguments
    asked_at = now()
    low, high = _instant(arguments.low, "from", asked_at), _instant(arguments.high, "to", asked_at)
    if arguments.last is not None:
        if low is not None or high is not None:
            raise OperatorError("--last is a range of its own: leave out --from and --to")
        found = _SPAN_OF_TIME.fullmatch(arguments.last)
        if found is None:
            raise OperatorError("--last takes a number with m, h, d or w, such as 30m, 24h, 7d or 4w")
        low = asked_at - timedelta(**{_UNITS[found[2]]: int(found[1])})
    if arguments.verb == "series":
        # A series has two ends.
        high = high or asked_at
        low = low or high - timedelta(days=1)
    timed = {**vars(arguments), "low": low, "high": high}
    if arguments.verb == "compare":
        timed["since"] = _instant(arguments.since, "since", asked_at)
    return argparse.Namespace(**timed)


def _instant(text: str | None, field: str, asked_at: datetime) -> datetime | None:
    if text in _MIDNIGHTS:
        return day_of(asked_at) - timedelta(days=_MIDNIGHTS[text])
    return None if text is None else instant(text, field)


_ANSWERS: Final[dict[str, Callable[[Database, int, argparse.Namespace], Awaitable[Answer]]]] = {
    "count": _count,
    "series": _series,
    "facets": _facets,
    "search": _search,
    "traces": _traces,
    "compare": _compare,
    "fields": _fields,
}
