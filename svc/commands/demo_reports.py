"""The report desk of the demo's story: three agents that write reports, and questions about documents.

Owns: `desk_session`, the traces of one session. A report is written by a supervisor, which has a researcher
search documents and ask a ledger over MCP, and hands over to a writer; it speaks the GenAI conventions. A
question is answered from retrieved documents, some about a picture of a chart; it speaks OpenInference.
Called by `demo_story`. Nothing is planted here: what fails does so as often in every week. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from svc.commands.demo_pictures import as_base64, bar_chart
from svc.commands.demo_recorder import (
    CALL_SITE,
    Attributes,
    Recorder,
    StoryTrace,
    as_json,
    call_part,
    chat,
    message,
    result_part,
    streamed,
    text_part,
)

SERVICE: Final = "report-desk"
#: Sessions of a weekday.
SESSIONS: Final = 26
#: Sessions are numbered from here on, behind those of the shop.
FIRST_SESSION: Final = 100
#: Time left until the end at each release, the newest first; the second changed the prompts.
RELEASES: Final = (
    (timedelta(days=6, hours=-10), "1.9.1"),
    (timedelta(days=17, hours=-8), "1.9.0"),
    (timedelta.max, "1.8.0"),
)
#: The share of sessions that testers have on the staging system.
STAGING: Final = 0.12
#: The share of the ledger's calls that fail, and of reports that somebody gives stars.
LEDGER_FAILS: Final = 0.03
RATED: Final = 0.35
#: How far durations scatter: less than at the shop, for a page that compares two days has few traces here.
SPREAD: Final = 0.2
#: The share of questions that are about a picture of a chart.
CHARTS: Final = 0.3

_NAMES: Final = (
    *("ana.lima", "ben.okafor", "chloe.martin", "david.kim", "elif.demir", "femi.adeyemi", "greta.holm"),
    *("hana.sato", "ivan.petrov", "julia.weber", "karim.haddad", "lena.novak", "marco.rossi", "nina.berg"),
)
_WISHES: Final = (
    *(
        "Please add the year before.",
        "Too short for the board.",
        "Which customers are behind the fourth quarter?",
    ),
    *("I need it in percent.", "Say where the figures come from."),
)
#: Users that come back over the weeks.
USERS: Final = len(_NAMES)
_TENANTS: Final = ("globex", "initech", "globex", "hooli", "umbrella")
_AUDIENCES: Final = ("board", "sales", "finance", "board")
_REGIONS: Final = ("northern", "southern", "western", "eastern")
_SALES: Final = ((412, 388, 455, 519), (203, 247, 239, 288), (655, 610, 702, 694), (98, 131, 127, 160))
_CLAUDE: Final = ("anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5-20250929")
_GEMINI: Final = ("gcp.gemini", "gemini-2.5-flash", "gemini-2.5-flash")
_SUPERVISOR: Final = (
    "You lead a researcher and a writer. Say what each of them does. Never write a report yourself."
)
_RESEARCHER: Final = (
    "You research. Search documents first, then ask the ledger for figures. Name your sources."
)
_WRITER: Final = (
    "You write reports for managers: a title, a sentence, a table. Use only the researcher's figures."
)
_READER: Final = "Answer from the documents. Say so when they do not tell."
_QUESTIONS: Final = (
    ("How many days of leave may I carry over?", "Five days, until the end of March.", "leave"),
    ("Who approves travel above 2,000 euros?", "Your head of department and finance.", "travel"),
    ("How long do we keep invoices?", "Ten years, counted from the end of the year.", "invoices"),
)
_DOCUMENTS: Final[Mapping[str, str]] = {
    "leave": "Up to five days of leave may be carried over. They expire on 31 March of the next year.",
    "travel": "Travel above 2,000 euros needs the approval of the head of department and of finance.",
    "invoices": "Invoices are kept for ten years, counted from the end of the year in which they were made.",
    "expenses": "Expenses are handed in within thirty days, each with its receipt.",
}


def desk_session(
    dice: random.Random, started_at: datetime, ends_at: datetime, session: str, user: int
) -> Iterator[StoryTrace]:
    """The traces of a session, one a turn, in a story that ends then."""
    is_report = dice.random() < 0.4
    is_staging = dice.random() < STAGING
    for _ in range(1 if is_report else dice.choice((1, 2, 2, 3))):
        yield _trace(dice, started_at, ends_at - started_at, session, user, (is_report, is_staging))
        started_at += timedelta(seconds=dice.uniform(30, 180))


def _trace(
    dice: random.Random,
    started_at: datetime,
    time_left: timedelta,
    session: str,
    user: int,
    session_kind: tuple[bool, bool],
) -> StoryTrace:
    is_report, is_staging = session_kind
    release = next(name for since, name in RELEASES if time_left <= since)
    name = "qa.team" if is_staging else _NAMES[user]
    metadata = {
        "tenant": "internal" if is_staging else _TENANTS[user % len(_TENANTS)],
        "audience": _AUDIENCES[user % len(_AUDIENCES)],
    }
    identity: Attributes = {"session.id": session, "user.id": name, "metadata": as_json(metadata)}
    recorder = Recorder(dice, started_at, identity)
    feedback: list[dict[str, Any]] = []
    if is_report:
        _report(recorder, "3" if release == RELEASES[-1][1] else "4")
        feedback = _stars(recorder, name)
    else:
        _question(recorder)
    resource: Attributes = {
        "service.name": SERVICE,
        "service.version": release,
        "deployment.environment.name": "staging" if is_staging else "production",
    }
    return StoryTrace(resource, recorder.spans, feedback)


# --- a report: three agents ---------------------------------------------------------------------------------


def _report(recorder: Recorder, prompt_version: str) -> None:
    """A supervisor, a researcher with documents and a ledger, a writer."""
    dice = recorder.dice
    region = dice.randrange(4)
    order = f"Write a report on last year's sales in the {_REGIONS[region]} region."
    site: Attributes = {CALL_SITE: "report", "gen_ai.prompt.version": prompt_version}
    root = _agent(recorder, "supervisor", site)
    plan = (
        f"researcher: find sales of the {_REGIONS[region]} region by quarter.\nwriter: one page with a table."
    )
    inputs = [message("system", text_part(_SUPERVISOR)), message("user", text_part(order))]
    tokens = (420 + dice.randrange(60), 0, 60 + dice.randrange(20))
    prompt: Attributes = {"gen_ai.prompt.name": "report-plan"}
    recorder.span(
        "chat claude-sonnet-4-5",
        recorder.took(1.6, SPREAD),
        chat(_CLAUDE, inputs, [text_part(plan)], tokens) | site | prompt,
        parent=root,
    )
    facts = _research(recorder, root, site, region)
    recorder.span(
        "handoff to writer",
        0.002,
        {
            **site,
            "logfire.msg_template": "Handoff: {from_agent} → {to_agent}",
            "logfire.msg": "Handoff: supervisor → writer",
        },
        parent=root,
    )
    _writing(recorder, root, site, (order, facts, region))


def _agent(recorder: Recorder, name: str, site: Attributes, parent: Span | None = None) -> Span:
    return recorder.span(
        f"invoke_agent {name}",
        0.0,
        {**site, "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name},
        parent=parent,
    )


def _research(recorder: Recorder, root: Span, site: Attributes, region: int) -> str:
    """Documents, the ledger over MCP, and what both say."""
    dice = recorder.dice
    agent = _agent(recorder, "researcher", site, root)
    task = f"Find sales of the {_REGIONS[region]} region by quarter."
    documents = [
        {"id": f"sales-{_REGIONS[region]}-{year}", "score": round(score, 2), "content": _annual(region, year)}
        for year, score in ((2025, dice.uniform(0.8, 0.95)), (2024, dice.uniform(0.55, 0.75)))
    ]
    recorder.span(
        "retrieval sales-reports",
        recorder.took(0.18, SPREAD),
        {
            **site,
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": "sales-reports",
            "gen_ai.retrieval.query.text": task,
            "gen_ai.retrieval.documents": as_json(documents),
        },
        parent=agent,
    )
    call = call_part(
        f"call-{dice.randrange(10**6)}", "query_ledger", {"region": _REGIONS[region], "year": 2025}
    )
    inputs = [message("system", text_part(_RESEARCHER)), message("user", text_part(task))]
    size = 900 + dice.randrange(200)
    prompt: Attributes = {"gen_ai.prompt.name": "report-research"}
    recorder.span(
        "chat gemini-2.5-flash",
        recorder.took(0.8, SPREAD),
        chat(_GEMINI, inputs, [call], (size, 0, 30)) | site | prompt,
        parent=agent,
    )
    figures = _ledger(recorder, agent, site, call, region)
    if figures is None:
        facts, answered = f"The ledger did not answer. {_annual(region, 2025)}", "no answer within 5 s"
    else:
        facts, answered = f"By quarter: {', '.join(map(str, figures))} thousand euros.", as_json(figures)
    inputs += [message("assistant", call), message("tool", result_part(call["id"], answered))]
    recorder.span(
        "chat gemini-2.5-flash",
        recorder.took(1.1, SPREAD),
        chat(_GEMINI, inputs, [text_part(facts)], (size + 120, 0, 70)) | site | prompt,
        parent=agent,
    )
    return facts


def _annual(region: int, year: int) -> str:
    total = sum(_SALES[region]) - 40 * (2025 - year)
    return f"Sales of the {_REGIONS[region]} region in {year}: {total} thousand euros."


def _ledger(
    recorder: Recorder, agent: Span, site: Attributes, call: Mapping[str, Any], region: int
) -> tuple[int, ...] | None:
    """A tool that is reached over MCP. Its figures, None where it did not answer."""
    failed = recorder.dice.random() < LEDGER_FAILS
    attributes: Attributes = {
        **site,
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-06-18",
        "mcp.session.id": f"ledger-{recorder.who['session.id']}",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call["name"],
        "gen_ai.tool.call.id": call["id"],
        "gen_ai.tool.call.arguments": as_json(call["arguments"]),
    }
    if failed:
        attributes["error.type"] = "TimeoutError"
    else:
        attributes["gen_ai.tool.call.result"] = as_json({"quarters": _SALES[region]})
    took_s = 5.0 if failed else recorder.took(0.4, SPREAD)
    error = "the ledger did not answer within 5 s" if failed else None
    recorder.span("tools/call query_ledger", took_s, attributes, error, agent)
    return None if failed else _SALES[region]


def _writing(recorder: Recorder, root: Span, site: Attributes, brief: tuple[str, str, int]) -> None:
    """The report, in pieces as it is written."""
    order, facts, region = brief
    agent = _agent(recorder, "writer", site, root)
    rows = "\n".join(f"| Q{n + 1} | {value} |" for n, value in enumerate(_SALES[region]))
    report = (
        f"# Sales in the {_REGIONS[region]} region\n\n{_annual(region, 2025)}\n\n"
        f"| Quarter | Thousand euros |\n|---|---|\n{rows}"
        if facts.startswith("By quarter")
        else f"# Sales in the {_REGIONS[region]} region\n\n{_annual(region, 2025)}\n\n"
        "Figures by quarter were not available."
    )
    inputs = [message("system", text_part(_WRITER)), message("user", text_part(order), text_part(facts))]
    tokens = (600 + recorder.dice.randrange(80), 0, 240 + recorder.dice.randrange(60))
    took_s = recorder.took(4.2, SPREAD)
    recorder.span(
        "chat claude-sonnet-4-5",
        took_s,
        chat(_CLAUDE, inputs, [text_part(report)], tokens)
        | site
        | {"gen_ai.prompt.name": "report-write"}
        | streamed(recorder, took_s),
        parent=agent,
    )


def _stars(recorder: Recorder, user: str) -> list[dict[str, Any]]:
    """What some readers give a report, from one to five."""
    extras = recorder.extras
    if extras.random() >= RATED:
        return []
    stars = extras.choice((2, 3, 4, 4, 4, 5, 5))
    reason = {"text": extras.choice(_WISHES)} if stars < 4 else {}
    return [recorder.opinion("stars", author=user, number=stars, **reason)]


# --- a question about documents -----------------------------------------------------------------------------


def _question(recorder: Recorder) -> None:
    """A query that is embedded, documents, and an answer; some of a picture."""
    dice = recorder.dice
    site: Attributes = {CALL_SITE: "document-question"}
    about_chart = dice.random() < CHARTS
    region = dice.randrange(4)
    question, answer, topic = dice.choice(_QUESTIONS)
    if about_chart:
        best = max(range(4), key=_SALES[region].__getitem__)
        question, topic = "Which quarter of this chart was the best?", ""
        answer = f"Quarter {best + 1}, with {_SALES[region][best]} thousand euros."
    recorder.span(
        "answer_question",
        0.0,
        {**site, "openinference.span.kind": "CHAIN", "input.value": question, "output.value": answer},
    )
    context = _retrieval(recorder, site, question, topic)
    recorder.span(
        "ChatCompletion",
        recorder.took(1.4, SPREAD),
        {
            **site,
            "openinference.span.kind": "LLM",
            "llm.provider": "openai",
            "llm.model_name": "gpt-4.1-mini",
            "llm.invocation_parameters": as_json({"temperature": 0.1, "max_tokens": 400}),
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": f"{_READER}\n\n{context}",
            **_asked(question, bar_chart(_SALES[region]) if about_chart else None),
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": answer,
            "llm.token_count.prompt": (1_250 if about_chart else 480) + dice.randrange(90),
            "llm.token_count.completion": 18 + dice.randrange(12),
        },
    )


def _retrieval(recorder: Recorder, site: Attributes, question: str, topic: str) -> str:
    """The question as numbers, and the documents nearest to it. Their texts."""
    dice = recorder.dice
    recorder.span(
        "embed_query",
        recorder.took(0.09, SPREAD),
        {
            **site,
            "openinference.span.kind": "EMBEDDING",
            "embedding.model_name": "text-embedding-3-small",
            "llm.provider": "openai",
            "embedding.embeddings.0.embedding.text": question,
            "llm.token_count.prompt": 11,
        },
    )
    names = sorted(_DOCUMENTS, key=lambda name: (name != topic, name))[:3]
    hits: Attributes = {}
    for rank, name in enumerate(names):
        score = dice.uniform(0.78, 0.93) if name == topic else dice.uniform(0.5, 0.6) - rank / 10
        prefix = f"retrieval.documents.{rank}.document."
        hits |= {
            f"{prefix}id": f"handbook/{name}",
            f"{prefix}score": round(score, 3),
            f"{prefix}content": _DOCUMENTS[name],
        }
    recorder.span(
        "search_handbook",
        recorder.took(0.12, SPREAD),
        {**site, "openinference.span.kind": "RETRIEVER", "input.value": question, **hits},
    )
    return "\n".join(_DOCUMENTS[name] for name in names)


def _asked(question: str, picture: bytes | None) -> Attributes:
    """The user's message, over numbered keys."""
    prefix = "llm.input_messages.1.message."
    if picture is None:
        return {f"{prefix}role": "user", f"{prefix}content": question}
    contents = f"{prefix}contents."
    return {
        f"{prefix}role": "user",
        f"{contents}0.message_content.type": "text",
        f"{contents}0.message_content.text": question,
        f"{contents}1.message_content.type": "image",
        f"{contents}1.message_content.image.image.url": f"data:image/png;base64,{as_base64(picture)}",
    }
