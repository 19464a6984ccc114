"""When a fact is stated, and every word of it.

The page, the command and the tool of agents show the same sentences. Pure. Nothing here says "rose", "slower"
or "dearer": that takes a baseline, and a subject that has one is left to its detector.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from svc.domain.detect.engine import beta
from svc.domain.detect.engine.from_birth import TOLERATED, ln_evidence, ln_threshold, surely_high
from svc.domain.first_look.facts import (
    CallCount,
    Fact,
    FirstLook,
    Group,
    Kind,
    MarkCount,
    ModelCount,
    RetryCount,
    TraceCount,
)
from svc.domain.first_look.month import MONTH_AFTER, MONTH_TRACES
from svc.domain.marks.table import MarkName
from svc.domain.quantities import count, counted, duration, money, percent, size
from svc.domain.spans.service_names import names_an_instance

#: Traces that a fact names to be opened.
EXAMPLES: Final = 3
#: Facts of one kind that are listed, those of most traces first.
SHOWN: Final = 8
#: The groups of facts in their order, with their titles.
GROUPS: Final[Mapping[Group, str]] = {
    "broken": "Broken",
    "failed": "Failed, but too rarely to be sure",
    "setup": "To change in your setup",
}


def facts_of(
    calls: Sequence[CallCount],
    retries: Iterable[RetryCount],
    models: Sequence[ModelCount],
    traces: TraceCount,
    services: Iterable[str],
    marks: Iterable[MarkCount] = (),
) -> list[Fact]:
    """Every fact, the worst first within its group."""
    if not traces.traces:
        return []
    # Tools and models have a budget of false alarms each, so that neither waits for the other's.
    kinds = ([call for call in calls if call.is_model is of_models] for of_models in (False, True))
    failing = [
        _failing(call, order) for of_kind in kinds for order, call in enumerate(of_kind, 1) if call.failed
    ]
    broken = [fact for fact in failing if fact is not None and fact.group == "broken"]
    failed = [fact for fact in failing if fact is not None and fact.group == "failed"]
    repeated = [_retry(retry, traces.traces) for retry in retries]
    marked = [_marked(mark, traces.traces) for mark in marks if mark.name in MARKED]
    unpriced = [_no_price(model, traces.traces) for model in models if model.unpriced]
    return [
        *(fact for facts in (broken, marked, repeated, failed, unpriced) for fact in _most(facts)),
        *_never_sent(models, traces),
        *_service_names(services, traces),
    ]


def _most(facts: Sequence[Fact]) -> list[Fact]:
    return sorted(facts, key=lambda fact: (-fact.traces, fact.subject))[:SHOWN]


def _failing(call: CallCount, order: int) -> Fact | None:
    if call.has_baseline:
        return None
    sure = ln_evidence(call.traces, call.failed) >= ln_threshold(order) or surely_high(
        call.traces, call.failed
    )
    every = call.failed == call.traces
    low = beta.interval(call.failed, call.traces)[0]
    proof = f"{count(call.failed)} of {counted(call.traces, 'trace')}"
    if call.error:
        each = "each " if call.error_traces == call.failed else f"{count(call.error_traces)} of them "
        proof += f", {each if call.failed > 1 else ''}with {call.error}"
    if sure:
        proof += f"; surely more than {percent(TOLERATED)}."
        what = "has failed in every trace" if every else "has failed from the start"
        remedy = "See what the provider says there" if call.is_model else "Fix the tool, or what calls it"
        action = f"Open a trace: it shows the failing call. {remedy}."
    else:
        proof += f"; too few to tell how often ({percent(low)} at least)."
        what = "has failed"
        action = "Open a trace to see why. With more traces, this becomes certain or disappears."
    kind: Kind = "model_broken" if call.is_model else "tool_broken"
    if not sure:
        kind = "model_failed" if call.is_model else "tool_failed"
    return Fact(
        kind,
        "broken" if sure else "failed",
        call.name,
        f"{call.name} {what}",
        proof,
        action,
        call.failed,
        call.traces,
        low,
        call.examples,
        reference=call.reference,
    )


def _retry(retry: RetryCount, traces: int) -> Fact:
    worked = "none of them" if not retry.succeeded else count(retry.succeeded)
    return Fact(
        "retry",
        "broken",
        retry.tool,
        f"{retry.tool} is repeated unchanged after a failure",
        f"{counted(retry.repeats, 'exact repeat')} in {count(retry.traces)} of {counted(traces, 'trace')}; "
        f"{worked} succeeded. Only arguments shorter than 200 characters are compared.",
        "Return what was wrong, so that the model can change its arguments.",
        retry.traces,
        traces,
        examples=retry.examples,
    )


#: Of a mark what is so, of a tool and of any; and what to do.
MARKED: Final[Mapping[MarkName, tuple[str, str, str]]] = {
    "args_break_schema": (
        "{} is called with arguments that break its schema",
        "A tool is called with arguments that break its schema",
        "Say in the description of the tool what it takes, or correct the schema that the model is given.",
    ),
    "http_error_in_ok_result": (
        "{} returns HTTP errors as results",
        "A tool returns HTTP errors as results",
        "Let such a call fail, so that it counts as a failure and the model is told.",
    ),
    "tool_broken_inside": (
        "{} fails with an error of its own code",
        "A tool fails with an error of its own code",
        "Open a trace: the fault is in the tool, whatever it is called with.",
    ),
}


def _marked(mark: MarkCount, traces: int) -> Fact:
    of_tool, of_any, action = MARKED[mark.name]
    proof = f"{counted(mark.count, 'call')} in {count(mark.traces)} of {counted(traces, 'trace')}"
    # As names stand elsewhere on the page and in the text.
    detail = mark.detail.replace("`", "")
    if detail and mark.count == 1:
        proof += f": {detail}"
    elif detail:
        often = "each time" if mark.detail_count == mark.count else "most often"
        proof += f"; {often} {detail}"
    return Fact(
        mark.name,
        "broken",
        mark.tool,
        of_tool.format(mark.tool) if mark.tool else of_any,
        proof + ".",
        action,
        mark.traces,
        traces,
        examples=mark.examples,
        filter=("mark", mark.name),
    )


def _no_price(model: ModelCount, traces: int) -> Fact:
    return Fact(
        "no_price",
        "setup",
        model.name,
        f"{model.name} has no price",
        f"{counted(model.unpriced, 'call')}, {counted(model.tokens, 'token')}. Their cost is missing from "
        "every total.",
        "Set its price in Settings, Prices; trace-svc reprice --apply prices past calls.",
        model.traces,
        traces,
        examples=model.examples,
        filter=("model", model.name),
    )


def _never_sent(models: Sequence[ModelCount], traces: TraceCount) -> Iterable[Fact]:
    total = traces.traces

    def missing(kind: Kind, what: str, proof: str, action: str) -> Fact:
        return Fact(kind, "setup", "", what, proof, action, total, total, examples=traces.examples)

    if not traces.sessions:
        users = f" Users are named in {count(traces.users)} of {count(total)}." if traces.users else ""
        yield missing(
            "no_session", "No trace names its session", f"0 of {count(total)}.{users}",
            "Set session.id (or gen_ai.conversation.id) on the root span of each turn.",
        )  # fmt: skip
    if not traces.users:
        sentence = f" Sessions are named in {count(traces.sessions)} of {count(total)}."
        sessions = sentence if traces.sessions else ""
        yield missing(
            "no_user", "No trace names its user", f"0 of {count(total)}.{sessions}",
            "Set user.id on the root span, next to session.id.",
        )  # fmt: skip
    calls = sum(model.calls for model in models)
    if calls and not any(model.with_usage for model in models):
        yield missing(
            "no_usage", "No model call reports its tokens",
            f"0 of {counted(calls, 'call')}: no cost is known.",
            "Record gen_ai.usage.* in your instrumentation; in streams of OpenAI ask for it with "
            'stream_options={"include_usage": true}.',
        )  # fmt: skip
    if calls and not any(model.with_content for model in models):
        yield missing(
            "no_content", "No model call carries its messages", f"0 of {counted(calls, 'call')}.",
            "Switch on the capture of content, as "
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true does.",
        )  # fmt: skip


def _service_names(services: Iterable[str], traces: TraceCount) -> Iterable[Fact]:
    names = sorted({service for service in services if names_an_instance(service)})
    if names:
        hidden_count = len(names) - EXAMPLES
        shown = ", ".join(names[:EXAMPLES]) + (f" and {count(hidden_count)} more" if hidden_count > 0 else "")
        yield Fact(
            "service_name",
            "setup",
            names[0],
            "The service name is a container id",
            f"{shown}: a new service at every restart.",
            "Set OTEL_SERVICE_NAME in the container.",
            traces.traces,
            traces.traces,
            examples=traces.examples,
        )  # fmt: skip


def month_lines(look: FirstLook) -> list[tuple[str, str]]:
    """The forecast in words: a name and a text each."""
    if look.month is None:
        return []
    lines = []
    if look.month.dollars is not None:
        low, high = look.month.dollars
        without = f", without {', '.join(look.unpriced)}" if look.unpriced else ""
        lines.append(("Models", f"{_rough(low)} – {_rough(high)}{without}"))
    if look.month.bytes is not None:
        lines.append(("Disk", " – ".join(size(bound) for bound in look.month.bytes)))
    return lines


def _rough(dollars: float) -> str:
    """Two digits: the interval knows no more."""
    rounded = round(dollars, 1 - math.floor(math.log10(dollars)))
    return money(rounded) if rounded < 100 else f"${count(round(rounded))}"


def month_basis(look: FirstLook) -> str:
    """What the forecast is made of."""
    if look.month is None:
        least = duration(MONTH_AFTER.total_seconds() * 1e3)
        return f"A month is forecast once there are {MONTH_TRACES} traces over {least}."
    elapsed = duration(look.month.seconds * 1e3)
    return (
        f"95 % interval from {elapsed} of traffic, taken as typical for all hours. "
        "It narrows as nights and weekends come in."
    )


def basis(look: FirstLook) -> str:
    """Over what the facts are counted."""
    traces = counted(look.traces, "trace")
    return (
        f"{traces if look.complete else f'The newest {traces}'}. Facts are counted; only the monthly "
        f"forecast is an estimate. {_compared(look)}"
    )


def _compared(look: FirstLook) -> str:
    """Where comparisons stand, and which failing tools are left to them."""
    sentence = "Nothing is compared yet."
    if look.open_cases:
        sentence = f"{counted(look.open_cases, 'case is', 'cases are')} open: see Triage."
    elif look.has_baseline:
        sentence = "Comparisons with a baseline are in Triage."
    tools = [f"{name} ({reference})" for name, reference in look.tools_in_cases.items()]
    hidden = f" and {count(len(tools) - SHOWN)} more" if len(tools) > SHOWN else ""
    return f"{sentence} Not listed here: {', '.join(tools[:SHOWN])}{hidden}." if tools else sentence


def as_json(look: FirstLook) -> dict[str, Any]:
    """What agents and programs are given."""
    return {
        "headline": look.headline,
        "traces": look.traces,
        "spans": look.spans,
        "facts": [
            {
                "kind": fact.kind,
                "what": fact.what,
                "proof": fact.proof,
                "action": fact.action,
                "traces": fact.traces,
                "of": fact.of,
                "at_least": None if fact.at_least is None else round(fact.at_least, 4),
                "examples": [{"trace_id": e.trace_id, "span_id": e.span_id} for e in fact.examples],
                "case": fact.reference,
            }
            for fact in look.facts
        ],
        "open_cases": look.open_cases,
        "tools_in_cases": dict(look.tools_in_cases),
        "dearest": [trace.trace_id for trace in look.dearest],
        "slowest": [trace.trace_id for trace in look.slowest],
        "month": None
        if look.month is None
        else {
            "seconds_seen": round(look.month.seconds),
            "dollars": _rounded(look.month.dollars, 2),
            "bytes": _rounded(look.month.bytes, 0),
        },
    }


def _rounded(bounds: tuple[float, float] | None, digits: int) -> list[float] | None:
    return None if bounds is None else [round(bound, digits) for bound in bounds]


def as_lines(look: FirstLook) -> list[str]:
    """All of it as plain text: what the command prints and the page offers to copy."""
    lines = [look.headline]
    if look.traces:
        lines += [basis(look)]
    for group, title in GROUPS.items():
        facts = look.group(group)
        lines += ["", title] if facts else []
        for fact in facts:
            case = f" Opened as {fact.reference}." if fact.reference else ""
            lines += [f"  {fact.what}", f"    {fact.proof}", f"    {fact.action}{case}"]
            if fact.examples:
                lines.append(f"    traces {', '.join(example.trace_id for example in fact.examples)}")
    for title, traces in (("Most expensive so far", look.dearest), ("Slowest so far", look.slowest)):
        lines += ["", title] if traces else []
        for trace in traces:
            figures = f"{duration(trace.latency_ms)}, {money(trace.total_cost)}"
            lines.append(f"  {trace.trace_id}  {trace.name}: {figures}")
    if look.traces:
        lines += ["", "A month at this rate"]
        lines += [f"  {name}: {value}" for name, value in month_lines(look)]
        lines.append(f"  {month_basis(look)}")
    return lines
