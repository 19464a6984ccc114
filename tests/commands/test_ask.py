"""Ordinary questions over the demo's four weeks, on the command line and by tools.

What deploy/asking.md shows is what the command prints, to the letter. The weeks arrive in one night, so they
are an imported history as well.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
import trio

from protocol.operator import OperatorError
from svc.application.open_store import Store
from svc.commands import ask as command
from svc.commands.asked import cut_note
from svc.commands.demo import requests_of
from svc.commands.demo_story import traces_of
from svc.config.table import read_settings
from svc.domain.calendar import day_of
from svc.runtime.clock import now
from svc.store.reads.questions.nothing_found import TEXT_NOTE
from tests.commands.test_commands import ROOT
from tests.commands.test_detections import refused
from tests.e2e.mcp import asked, beside
from tests.service import Service, running, until

DAYS: Final = 28
#: A Monday, so that the last week is a whole one.
ENDS_AT: Final = datetime(2026, 11, 23, tzinfo=UTC)
LAST_WEEK: Final = {"from": "2026-11-16", "to": "2026-11-23"}
SUNDAY: Final = {"from": "2026-11-22", "to": "2026-11-23"}
FRIDAY: Final = {"from": "2026-11-20", "to": "2026-11-21"}
ANSWER_BYTES: Final = 5 * 1024
#: The commands of the page, each with what stands below it.
SHOWN: Final = re.findall(
    r"^\$ trace-svc (ask .*)\n((?:(?!\$ |```).*\n)+)",
    (ROOT / "deploy" / "asking.md").read_text(),
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def story() -> Iterator[Service]:
    """A service that was sent the four weeks, with all of it settled and looked through for secrets."""
    with running(SVC_DETECTORS_INTERVAL_SECONDS="1") as service:
        sent = 0
        for day in range(DAYS):
            for body, spans in requests_of(list(traces_of(day, DAYS, ENDS_AT))):

                def taken(body: bytes = body) -> bool:
                    return service.send(body).status_code == 200

                until(taken)
                sent += spans

        async def unsettled(store: Store) -> Any:
            (row,) = await store.database.fetch("select count(*) as n from trace_due")
            return row["n"]

        def ready() -> bool:
            leaks = service.ask("count", {"dataset": "classifier_events"})["count"]
            stored = service.ask("count", {"dataset": "spans"})["count"]
            return (stored, leaks) == (sent, 1) and beside(service, unsettled) == 0

        until(ready, every_s=0.5)
        yield service


def here(service: Service, *arguments: str) -> None:
    """Run the command in this process, which starts in a fifth of the time."""
    parser = argparse.ArgumentParser()
    command.add(parser)
    trio.run(command.run, parser.parse_args(arguments), read_settings(service.env))


def test_the_page_shows_at_least_ten_questions() -> None:
    assert len(SHOWN) >= 10
    assert len({command for command, _ in SHOWN}) == len(SHOWN)


@pytest.mark.parametrize(("asked_for", "answer"), SHOWN, ids=[words for words, _ in SHOWN])
def test_a_question_of_the_page_has_the_answer_of_the_page(
    story: Service, asked_for: str, answer: str
) -> None:
    assert story.command(*shlex.split(asked_for)) == answer


# --- the same by tools: at most two calls of at most 5 KB ---------------------------------------------------


class Agent:
    """Asks by tools, and counts."""

    def __init__(self, service: Service) -> None:
        self.service, self.calls = service, 0

    def __call__(self, tool: str, **arguments: Any) -> Any:
        self.calls += 1
        assert self.calls <= 2
        answer = asked(self.service, tool, **arguments)
        assert len(json.dumps(answer, separators=(",", ":"))) <= ANSWER_BYTES
        return answer


def _facets(agent: Agent, field: str, **more: Any) -> list[Any]:
    arguments = {"dataset": "spans", "by": "started_at", "range": LAST_WEEK} | more
    facets: list[Any] = agent("query_facets", field=field, **arguments)["facets"]
    return facets


def _why_a_tool_failed_yesterday(agent: Agent) -> Any:
    filters = {"tool": "lookup_order", "status": "error"}
    (kind,) = _facets(agent, "error_type", range=SUNDAY, filters=filters)
    (tenant,) = _facets(agent, "tenant", range=SUNDAY, filters=filters)
    return kind["value"], kind["count"], tenant["value"]


def _errors_a_day(agent: Agent) -> Any:
    week = {"dataset": "spans", "range": LAST_WEEK, "by": "started_at", "measure": "errors"}
    return [bucket["errors"] for bucket in agent("query_timeseries", interval="day", **week)["buckets"]]


def _spend_by_model(agent: Agent) -> Any:
    facets = _facets(agent, "model_id", measure="cost")
    return [(facet["value"], round(float(facet["cost"] or 0), 2)) for facet in facets[:2]]


def _which_tool_fails_most_and_how(agent: Agent) -> Any:
    tool = _facets(agent, "tool", measure="errors", filters={"kind": "tool"})[0]
    kinds = _facets(agent, "error_type", filters={"tool": tool["value"], "status": "error"})
    return tool["value"], {kind["value"]: kind["count"] for kind in kinds}


def _who_is_hit_most(agent: Agent) -> Any:
    tenant = _facets(agent, "tenant", measure="errors")[0]
    return tenant["value"], tenant["errors"]


def _how_slow_each_call_site_is(agent: Agent) -> Any:
    sites = _facets(agent, "call_site_id", measure="duration_p95", filters={"kind": "llm"})
    return [(site["value"], round(site["duration_p95"], -2)) for site in sites]


def _whether_a_secret_was_leaked(agent: Agent) -> Any:
    rows = agent("query_search", dataset="classifier_events", filters={"classifier_id": "secret_leak"})[
        "rows"
    ]
    trace = agent("list_traces", q="debug: key", limit=1)["traces"][0]
    (row,) = rows
    return row["fields"]["call_site_id"], row["fields"]["subject_trace_id"] == trace["trace_id"]


def _the_slowest_trace_of_a_day(agent: Agent) -> Any:
    (trace,) = agent("list_traces", range=FRIDAY, sort="latency", limit=1)["traces"]
    return trace["name"], round(trace["latency_ms"], -2)


def _what_changed_at_a_call_site(agent: Agent) -> Any:
    site = {"call_site_id": "ticket-summary"}
    answer = agent(
        "compare",
        baseline={"range": {"from": "2026-11-11", "to": "2026-11-18T10:00:00Z"}, "filters": site},
        comparison={"range": {"from": "2026-11-18T10:00:00Z"}, "filters": site},
    )
    slower = next(measured for measured in answer["measures"] if measured["measure"] == "duration")
    return (
        # Largest first; the rest is who else came since, and that an older release is gone.
        {moved["value"] for moved in answer["moved"][:2]},
        slower["comparison"]["value"] / slower["baseline"]["value"] > 1.8,
    )


def _failed_conversations_about_a_topic(agent: Agent) -> Any:
    traces = agent("list_traces", range=LAST_WEEK, q="charged twice", failed_spans=True, limit=3)["traces"]
    return {trace["input_preview"] for trace in traces}, min(trace["error_count"] for trace in traces)


TEN: Final[tuple[tuple[Callable[[Agent], Any], Any], ...]] = (
    (_why_a_tool_failed_yesterday, ("QuotaExceededError", 8, "northwind")),
    (_errors_a_day, [5, 3, 2, 2, 10, 12, 8]),
    (_spend_by_model, [("gpt-4o", 2.41), ("claude-sonnet-4-5", 0.51)]),
    (_which_tool_fails_most_and_how, ("lookup_order", {"QuotaExceededError": 28, "TimeoutError": 13})),
    (_who_is_hit_most, ("northwind", 33)),
    (
        _how_slow_each_call_site_is,
        [
            *(("ticket-summary", 7_100), ("report", 4_700), ("document-question", 1_900)),
            *(("support", 1_900), ("intent", 900)),
        ],
    ),
    (_whether_a_secret_was_leaked, ("support", True)),
    (_the_slowest_trace_of_a_day, ("summarise_ticket", 13_900)),
    (_what_changed_at_a_call_site, ({"gpt-4o-2024-08-06", "gpt-4o-2024-11-20"}, True)),
    (_failed_conversations_about_a_topic, ({"Why was I charged twice in October?"}, 1)),
)


@pytest.mark.parametrize(("question", "answer"), TEN, ids=[question.__name__ for question, _ in TEN])
def test_a_question_is_answered_right_in_two_small_calls(
    story: Service, question: Callable[[Agent], Any], answer: Any
) -> None:
    assert question(Agent(story)) == answer


# --- the command ------------------------------------------------------------------------------------------


def test_as_json_a_question_has_the_answer_of_the_api(
    story: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_command(*arguments: str) -> Any:
        here(story, *arguments, "--json")
        return json.loads(capsys.readouterr().out)

    on_week = ("--from", LAST_WEEK["from"], "--to", LAST_WEEK["to"])
    body = {"dataset": "spans", "range": LAST_WEEK, "by": "started_at"}
    series = on_command("series", "day", *on_week, "--group-by", "release", "--measure", "cost")
    assert series == story.ask(
        "timeseries", body | {"interval": "day", "group_by": "release", "measure": "cost"}
    )
    facets = on_command("facets", "tenant", *on_week, "--ascending", "--top", "2")
    assert facets == story.ask("facets", body | {"field": "tenant", "sort": "ascending", "top_n": 2})
    failed = on_command("count", "--where", "status=error", "--where", "error_type=", *on_week)
    assert failed == story.ask("count", body | {"filters": {"status": "error", "error_type": None}})
    found = on_command("search", "quota", "--dataset", "tool_calls", "--limit", "3", *on_week)
    assert found == story.ask("search", body | {"dataset": "tool_calls", "q": "quota", "limit": 3})
    assert [len(found["rows"]), bool(found["next_cursor"])] == [3, True]


def test_an_answer_by_arrival_says_what_it_misses(story: Service, capsys: pytest.CaptureFixture[str]) -> None:
    here(story, "count", "--by", "arrival", "--from", "2026-11-01", "--to", "2026-11-02")
    text = capsys.readouterr().out
    assert re.search(r"^0 by arrival; \d+ started in this range: by=started_at$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("facets", "tool", "--top", "500"), "'500' is not a number from 1 to 100"),
        (("series", "day", "--top", "0"), "'0' is not a number from 1 to 20"),
        (("traces", "--limit", "5000"), "'5000' is not a number from 1 to 200"),
        (("search", "--limit", "-1"), "'-1' is not a number from 1 to 1000"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_more_than_is_given_at_once_is_refused(
    story: Service, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit):
        here(story, *arguments)
    assert said in capsys.readouterr().err


def test_what_an_answer_leaves_out_is_said(story: Service, capsys: pytest.CaptureFixture[str]) -> None:
    here(story, "traces", "--limit", "2")
    assert capsys.readouterr().out.endswith(
        "\nThere are more: narrow the range, or ask for more with --limit.\n"
    )
    here(story, "traces", "--limit", "200")
    assert capsys.readouterr().out.endswith("\nThere are more: narrow the range.\n")
    here(story, "facets", "user_id", "--top", "2")
    head, *lines = capsys.readouterr().out.splitlines()
    assert (head.split(), len(lines), lines[-1]) == (
        ["USER_ID", "COUNT"],
        3,
        "There are more: ask for them with --top 100.",
    )
    here(story, "facets", "user_id", "--top", "100")
    assert capsys.readouterr().out.endswith("\nThere are more: narrow the rows with --where.\n")
    here(story, "facets", "kind")
    assert "There are more" not in capsys.readouterr().out
    here(story, "series", "day")
    assert capsys.readouterr().out.endswith("\nThese are 24 hours; --last or --from names another range.\n")
    here(story, "series", "day", "--last", "2d")
    assert "names another range" not in capsys.readouterr().out
    here(story, "count", "--where", "status=failed", "--where", "kind=LLM")
    text = capsys.readouterr().out
    assert "kind is never 'LLM', only llm, " in text
    assert "status is never 'failed', only ok, error" in text


def test_today_and_yesterday_are_days_in_utc(story: Service, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*arguments: str) -> str:
        here(story, *arguments)
        return capsys.readouterr().out

    today = day_of(now())
    days = [(today - timedelta(days=back)).date().isoformat() for back in (1, 0)]
    said = printed("series", "hour", "--from", "yesterday", "--to", "today")
    # Midnight may have passed meanwhile.
    if day_of(now()) == today:
        assert said == printed("series", "hour", "--from", days[0], "--to", days[1])
    assert len(said.splitlines()) == 25


@pytest.mark.parametrize(
    ("low", "high", "interval", "note"),
    [
        ("2026-11-24T00:00", "2026-11-27T00:00", "day", None),
        ("2026-11-24T14:05", "2026-11-27T00:00", "day", "The first day counts from 2026-11-24 14:05."),
        ("2026-11-24T00:00", "2026-11-27T09:30", "day", "The last day counts until 2026-11-27 09:30."),
        (
            "2026-11-24T14:05",
            "2026-11-27T09:30",
            "day",
            "The first day counts from 2026-11-24 14:05. The last day counts until 2026-11-27 09:30.",
        ),
        ("2026-11-24T14:05", "2026-11-25T00:00", "day", "This day counts from 2026-11-24 14:05."),
        (
            "2026-11-24T14:05",
            "2026-11-24T14:30",
            "hour",
            "This hour counts from 2026-11-24 14:05 until 2026-11-24 14:30.",
        ),
        ("2026-11-01T00:00", "2026-11-30T00:00", "month", "This month counts until 2026-11-30 00:00."),
        ("2026-11-24T14:05:10", "2026-11-24T14:30:10", "minute", None),
        ("2026-11-24T14:05", "2026-11-24T14:05", "hour", None),
    ],
)
def test_a_series_says_which_buckets_are_shorter(
    low: str, high: str, interval: str, note: str | None
) -> None:
    ends = (datetime.fromisoformat(end).replace(tzinfo=UTC) for end in (low, high))
    assert cut_note(*ends, interval) == note


def test_a_series_until_now_says_so(story: Service, capsys: pytest.CaptureFixture[str]) -> None:
    here(story, "series", "week", "--from", "2026-11-16")
    assert re.search(r"\nThe last week counts until [0-9: -]{16}\.\n$", capsys.readouterr().out)
    here(story, "series", "week", "--from", "2026-11-16", "--to", "2026-11-23")
    assert "counts" not in capsys.readouterr().out


def test_what_can_be_asked_is_listed(story: Service, capsys: pytest.CaptureFixture[str]) -> None:
    here(story, "fields")
    text = capsys.readouterr().out
    assert all(word in text for word in ("tool_calls", "model_id", "tenant", "duration_p95", "filter only"))


def test_nothing_found_is_said(story: Service, capsys: pytest.CaptureFixture[str]) -> None:
    here(story, "facets", "tool", "--where", "tool=none")
    assert capsys.readouterr().out == (
        "No rows match.\ntool is never 'none', only lookup_order, query_ledger\n"
    )
    here(story, "search", "--where", "name=none")
    assert capsys.readouterr().out == "No rows match.\n"
    here(
        story,
        "traces",
        "--where",
        "trace.status=error",
        "--where",
        "tool=lookup_order",
        "--from",
        "2020-01-01",
    )
    assert capsys.readouterr().out == "No traces match.\n"
    here(story, "traces", "no such text")
    assert capsys.readouterr().out == f"No traces match.\n{TEXT_NOTE}\n"
    here(story, "compare", "--with", "tenant=none")
    text = capsys.readouterr().out
    assert text.endswith("\ncomparison: no trace matches\n")
    assert "chance" not in text


def test_what_narrows_a_comparison_narrows_both_of_its_sides(
    story: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    def matched(*arguments: str) -> tuple[int, int]:
        here(story, "compare", *arguments, "--json")
        answer = json.loads(capsys.readouterr().out)
        return answer["baseline"]["traces"], answer["comparison"]["traces"]

    failed_anywhere = matched("--with", "status=error")
    others, failed = matched("--with", "status=error", "--where", "tenant=northwind")
    assert 0 < failed < failed_anywhere[1]
    assert 0 < others < failed_anywhere[0]
    # One field on both sides has a value on each.
    kept = "tenant=northwind"
    assert matched("--with", "status=error", "--where", "status=ok", "--where", kept)[1] == failed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("facets", "nope"), "unknown field 'nope' for dataset 'spans'; one of: kind, name"),
        (("facets", "trace_id"), "dataset 'spans' is filtered by 'trace_id', but not grouped by it"),
        (("count", "--where", "status"), "'status' is not FIELD=VALUE, such as status=error"),
        (("count", "--last", "7x"), "--last takes a number with m, h, d or w"),
        (("count", "--last", "7d", "--from", "2026-11-01"), "--last is a range of its own"),
        (("count", "--from", "lately"), "'from' is not an ISO 8601 instant"),
        (("compare", "--since", "lately"), "'since' is not an ISO 8601 instant"),
        (("count", "--from", "2026-11-02", "--to", "2026-11-01"), "'range.from' is after 'range.to'"),
        (("count", "--dataset", "metric_rollups", "--by", "start"), "leave out --by"),
        (("search", "--dataset", "metric_rollups"), "does not support search"),
        (("count", "--dataset", "tool_calls", "--measure", "cost"), "unknown measure 'cost'"),
        (("traces", "--sort", "cost"), "--sort needs a range"),
        (("traces", "--where", "usage_repeats=x"), "traces are not filtered by 'usage_repeats'"),
        (("compare",), "which traces?"),
        (("compare", "--with", "trace.status=maybe"), "trace.status is ok or error"),
        (("count", "--project", "nothing"), "there is no project"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_asked_is_said_in_a_sentence(
    story: Service, arguments: tuple[str, ...], said: str
) -> None:
    sentence = ""
    try:
        here(story, *arguments)
    except* OperatorError as found:
        while isinstance(found, BaseExceptionGroup):
            (found,) = found.exceptions
        sentence = str(found)
    assert said in sentence


def test_a_refusal_is_a_line_and_an_exit_code(story: Service) -> None:
    assert refused(story, "ask", "facets", "nope").startswith("trace-svc: unknown field 'nope'")
