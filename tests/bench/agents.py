"""`make bench-agents`: agents look for the causes of the demo's planted faults, and how well they find them.

    python -m tests.bench.agents [--times 3] [--labelled FOLDER]
        [--integration openai|google|openai_compatible|anthropic] [--model NAME] [--base-url URL]

The four weeks of the demo go through the real door into a service of its own; once its three cases are open,
a run is made for each, as often as `--times` says. Whose model answers: with `--integration`, one with the
key in BENCH_AGENT_KEY; else the provider that AGENT_PROVIDER and its credentials in the environment name;
else the scripted model of the tests, which shows that the bench works and nothing about any model. Prints a
row for each fault, and what the runs used.

With `--labelled` a labelled set (as `tests.bench.judge` reads it) is sent instead; every finding on it is
judged and the cause of every case looked for, and a row says how much of what was cited people had labelled.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import httpx2
import trio

from protocol.agents import RunKind
from tests.bench.judge import applications, counted, labels_of, pages, sent
from tests.bench.judge_scores import Label
from tests.e2e.agents import Agents, agents
from tests.e2e.sleuth import sleuth
from tests.runner.standin_model import standin
from tests.service import PLAIN, running, until

#: What the environment names a provider by.
ENVIRONMENT: Final = (
    *("AGENT_PROVIDER", "AGENT_MODEL", "AGENT_BASE_URL", "AGENT_OUTPUT_TOKENS", "AGENT_CONTEXT_TOKENS"),
    *("ANTHROPIC_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "CLOUD_REGION"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)
#: A run may take its fifteen minutes five times over.
RUN_S: Final = 5_000.0
STORY_S: Final = 300.0
#: Findings come within a minute of what they are about, or not.
QUIET_S: Final = 90.0


@attrs.frozen
class Fault:
    """What was planted: the detectors that may lead its case, the verdicts that are right, and the words of
    the cause, one of each group.
    """

    name: str
    detectors: frozenset[str]
    verdicts: frozenset[str]
    words: Sequence[frozenset[str]]


FAULTS: Final = (
    Fault(
        "a tool refuses one tenant",
        frozenset({"tool_error", "new_signature"}),
        frozenset({"behavior_change"}),
        (frozenset({"northwind"}), frozenset({"quota", "quotaexceedederror"})),
    ),
    Fault(
        "another model answers more slowly",
        frozenset({"duration_drift"}),
        frozenset({"model_change", "definition_change"}),
        (frozenset({"model"}),),
    ),
    Fault(
        "a secret in an answer",
        frozenset({"secret_leak"}),
        frozenset({"behavior_change", "definition_change", "traffic_shift"}),
        (frozenset({"akia", "access key", "credential", "secret"}),),
    ),
)


@attrs.frozen
class RunScore:
    """One run: whether its verdict and its words are those of the fault, and how much of its evidence is."""

    state: str
    verdict_right: bool = False
    cause_named: bool = False
    #: Of the traces that its hypotheses stand on, the share that is the finding's own; None: it has none.
    evidence: float | None = None
    unsupported: int = 0
    turns: int = 0
    tokens: int = 0
    usd: float | None = None
    seconds: float = 0.0


def scored(
    fault: Fault, run: Mapping[str, Any], report: Mapping[str, Any] | None, own: set[str], seconds: float
) -> RunScore:
    """A run against what was planted; `own` are the traces of the finding's evidence."""
    spent = run["spent"]
    used = {
        "turns": spent["turns"],
        "tokens": sum(spent[part] for part in ("input", "output", "cache_read", "cache_write")),
        "usd": spent["usd"],
        "seconds": seconds,
    }
    if report is None:
        return RunScore(run["state"], **used)
    hypotheses = report["hypotheses"]
    said = " ".join(
        [report["summary"], *(f"{each['title']} {each['rationale']}" for each in hypotheses)]
    ).lower()
    stood_on = {trace for each in hypotheses for trace in each["evidence_trace_ids"]}
    return RunScore(
        run["state"],
        report["verdict"] in fault.verdicts,
        all(any(word in said for word in group) for group in fault.words),
        len(stood_on & own) / len(stood_on) if stood_on else None,
        len(report.get("unsupported") or ()),
        **used,
    )


def table(scores: Mapping[str, Sequence[RunScore]]) -> str:
    """The scores as Markdown, a row for each fault."""
    lines = [
        "| Fault | Runs | Verdict right | Cause named | Evidence its own | Numbers unsupported | Turns"
        " | Tokens | USD | Seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in scores.items():
        evidence = [run.evidence for run in runs if run.evidence is not None]
        dollars = [run.usd for run in runs if run.usd is not None]
        cells = (
            name,
            f"{sum(run.state == 'done' for run in runs)} of {len(runs)}",
            str(sum(run.verdict_right for run in runs)),
            str(sum(run.cause_named for run in runs)),
            f"{100 * statistics.mean(evidence):.0f} %" if evidence else "none",
            str(sum(run.unsupported for run in runs)),
            f"{statistics.median(run.turns for run in runs):.0f}",
            f"{statistics.median(run.tokens for run in runs):,.0f}",
            f"{statistics.mean(dollars):.2f}" if dollars else "no price",
            f"{statistics.median(run.seconds for run in runs):.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@attrs.frozen
class CitedScore:
    """One run on a labelled set: of what it cites, how much people had labelled."""

    subject: str
    kind: RunKind
    state: str
    verdict: str
    spans: int
    labelled_spans: int
    traces: int
    labelled_traces: int
    turns: int
    usd: float | None


def cited_score(
    subject: str,
    kind: RunKind,
    run: Mapping[str, Any],
    verdict: str | None,
    citations: Iterable[Mapping[str, Any]],
    labels: Collection[Label],
) -> CitedScore:
    """A run against the labels of people."""
    ids = {(each["kind"], each["id"]) for each in citations}
    spans = {id_ for cited_as, id_ in ids if cited_as == "span"}
    traces = {id_ for cited_as, id_ in ids if cited_as == "trace"}
    return CitedScore(
        subject,
        kind,
        run["state"],
        verdict or "none",
        len(spans),
        len(spans & {label.span_id for label in labels}),
        len(traces),
        len(traces & {label.trace_id for label in labels}),
        run["spent"]["turns"],
        run["spent"]["usd"],
    )


def cited_table(scores: Sequence[CitedScore], traces: int, labels: Collection[Label]) -> str:
    """The runs on a labelled set as Markdown; what chance would cite stands below."""
    if not scores:
        lines = ["No finding was made on these traces, so that no agent had anything to look into."]
    else:
        lines = [*_CITED_HEAD, *map(_cited_row, scores)]
    labelled = len({label.trace_id for label in labels})
    return "\n".join([*lines, f"\nOf all {traces} traces people labelled {labelled}."])


_CITED_HEAD: Final = (
    "| Finding or case | Run | State | Verdict | Spans cited | labelled | Traces cited | labelled"
    " | Turns | USD |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def _cited_row(score: CitedScore) -> str:
    cells = (
        *(score.subject, score.kind, score.state, score.verdict),
        *map(str, (score.spans, score.labelled_spans, score.traces, score.labelled_traces, score.turns)),
        "no price" if score.usd is None else f"{score.usd:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def _kind_of(id_: str) -> str:
    """What a triage cites, by the form of its id."""
    return {16: "span", 32: "trace"}.get(len(id_), "query")


def all_findings(house: Agents) -> list[dict[str, Any]]:
    """The findings, once none has come for a while."""
    findings: list[dict[str, Any]] = []
    since_s = time.monotonic()
    while time.monotonic() - since_s < QUIET_S:
        time.sleep(2.0)
        listed = house.tool("list_findings", include="all")["findings"]
        if len(listed) != len(findings):
            findings, since_s = listed, time.monotonic()
    return findings


def judged_set(house: Agents, folder: Path) -> str:
    """A labelled set, sent, and every finding and case on it looked into."""
    apps = applications(folder)
    traces = sum(len(sent(house.service, one)) for one in apps)
    labels = [label for one in apps for label in labels_of(one)]
    trio.run(counted, house.service, traces)
    scores = []
    for finding in all_findings(house):
        run = house.over(house.press("triage", finding["id"]), RUN_S)
        ruled = house.call("GET", f"/findings/{finding['id']}")
        cited = [{"kind": _kind_of(id_), "id": id_} for id_ in ruled["triageCitations"] or ()]
        scores.append(cited_score(finding["title"], "triage", run, ruled["triageVerdict"], cited, labels))
    for case in house.tool("list_cases")["cases"]:
        run = house.over(house.press("rca", case["id"]), RUN_S)
        report: Mapping[str, Any] = {}
        if run["state"] == "done":
            report = house.call("GET", f"/rca/{run['report_id']}")["report"]
        cited = [one for each in report.get("hypotheses", ()) for one in each["citations"]]
        scores.append(cited_score(case["title"], "rca", run, report.get("verdict"), cited, labels))
    return cited_table(scores, traces, labels)


def told_story(house: Agents) -> dict[str, dict[str, Any]]:
    """The demo's four weeks, sent and judged; its cases by their detector."""
    house.service.command("demo", "--url", house.service.url, "--weeks", "4", timeout_s=STORY_S)

    def cases() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = house.tool("list_cases")["cases"]
        return found

    until(lambda: len(cases()) == len(FAULTS), STORY_S, every_s=1.0)
    until(lambda: all(case["rca_available"] for case in cases()), STORY_S, every_s=1.0)
    return {case["detector"]: case for case in cases()}


def judged(house: Agents, fault: Fault, case: Mapping[str, Any]) -> RunScore:
    """One run on the case of a fault."""
    began_s = time.monotonic()
    run = house.over(house.press("rca", case["id"]), RUN_S)
    seconds = time.monotonic() - began_s
    report = None
    if run["state"] == "done":
        report = house.call("GET", f"/rca/{run['report_id']}")["report"]
    else:
        print(f"{fault.name}: {run['state']}, {run['reason'] or run['failure']}")
    return scored(fault, run, report, own_traces(house, case["finding_id"]), seconds)


def own_traces(house: Agents, finding_id: str) -> set[str]:
    """All traces of a finding's evidence."""
    refs = pages(house.service, "get_finding_evidence", "refs", finding_id=finding_id)
    return {ref["trace_id"] for ref in refs if ref.get("trace_id")}


@contextmanager
def asked_model(options: argparse.Namespace) -> Iterator[tuple[str, Agents]]:
    """A service whose agents ask the model that is to be judged, and how it is called."""
    settings = {"SVC_DETECTORS_INTERVAL_SECONDS": "5"}
    named = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    if options.integration is None and "AGENT_PROVIDER" not in named:
        with standin(sleuth) as model, agents(None, model, **settings) as house:
            yield "the scripted model of the tests; it says nothing about any real one", house
        return
    known: Any = {**settings, **({} if options.integration else named)}
    with running(**known) as service, standin(sleuth) as unasked:
        key = service.command("keys", "create", "--scope", "admin", "--name", "bench").strip()
        house = Agents(service, unasked, key)
        if options.integration:
            use_integration(house, options)
        yield options.model or named.get("AGENT_MODEL") or "the newest that its provider lists", house


def use_integration(house: Agents, options: argparse.Namespace) -> None:
    """Have runs ask an integration of ours."""
    url = house.service.url
    with httpx2.Client(base_url=url, headers={"Origin": url}, timeout=60, **PLAIN) as owner:
        person = {"email": "owner@example.org", "password": "correct horse battery"}
        assert owner.post("/auth/signup", json=person).status_code == 201
        integration = {
            "name": "bench",
            "kind": "model_provider",
            "provider": options.integration,
            "base_url": options.base_url,
            "secret": os.environ["BENCH_AGENT_KEY"],
        }
        made = owner.post("/api/orgs/default/integrations", json=integration)
        assert made.status_code == 201, made.text
        choice = {"integration_id": made.json()["data"]["id"], "model": options.model}
        wanted = {"models": {"rca": choice}, "day_usd": 1_000.0}
        set_ = owner.put("/api/orgs/default/projects/default/agent-settings", json=wanted)
        assert set_.status_code == 200, set_.text


def main() -> None:
    """Judge one model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--labelled", type=Path, metavar="FOLDER")
    parser.add_argument("--integration", choices=("anthropic", "openai", "google", "openai_compatible"))
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    if options.integration and not options.model:
        parser.error("--integration needs --model")
    if options.integration and not os.environ.get("BENCH_AGENT_KEY"):
        parser.error("--integration needs its key in BENCH_AGENT_KEY")
    with asked_model(options) as (name, house):
        print(f"Model: {name}\n")
        if options.labelled:
            print(judged_set(house, options.labelled))
            return
        cases = told_story(house)
        scores: dict[str, list[RunScore]] = {}
        for fault in FAULTS:
            [case] = [cases[detector] for detector in cases.keys() & fault.detectors]
            scores[fault.name] = [judged(house, fault, case) for _ in range(options.times)]
        print(table(scores))


if __name__ == "__main__":
    main()
