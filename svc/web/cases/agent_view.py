"""The agent of a finding or a case as a page shows it: its newest run, and its report beside the rule's.

Reads what the store tells of a run and puts it into words. Never begins or ends one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import attrs

from protocol.agents import RunKind
from svc.store.agents.reads import RunReads
from svc.web.cases.case_text import VERDICTS
from svc.web.shell import words
from svc.web.shell.page import Visit

#: Why a run waits for people, and what they can do.
PARKED: Final[Mapping[str, str]] = {
    "no_provider": "no model provider is set: an admin sets one under Settings, Agents, or the operator"
    " in the runner's environment",
    "rejected_credential": "the model provider refuses the credential: enter it anew",
    "no_such_model": "the provider has no such model, or none is named: choose one under Settings, Agents, or"
    " the operator in the runner's environment (AGENT_MODEL)",
    "day_budget": "the project's budget of today is used up: it goes on tomorrow, or with a larger one",
    "misconfigured_runner": "the sandbox runner refuses this service: both need the same SANDBOX_RUNNER_KEY",
}
#: How a run failed, by the first word of what is kept.
FAILED: Final[Mapping[str, str]] = {
    "timeout": "its time was over",
    "budget": "its budget was used up before it had an answer",
    "bad_output": "its answers did not stand up to the checks",
    "bad_answer": "the model provider's answer cannot be read",
    "provider_refused": "the model provider refused the request",
    "sandbox_died": "its sandbox died twice",
    "broken": "something in it broke",
}
#: Of these the rest is quoted: it says what to change.
_QUOTED: Final = ("bad_output", "bad_answer", "provider_refused")
_LIVE: Final = ("queued", "running", "parked")


@attrs.frozen
class AgentView:
    """What the template of an agent is given. `press` and `part` are addresses."""

    kind: RunKind
    run: Mapping[str, Any] | None
    press: str
    part: str
    cancel: str
    #: The reports by engine, of a case.
    reports: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    off: bool = False

    @property
    def live(self) -> bool:
        """Whether there is something to watch."""
        return self.run is not None and self.run["state"] in _LIVE

    @property
    def usd(self) -> str:
        """What it has cost so far."""
        spent = {} if self.run is None else self.run["spent"]
        usd = spent.get("usd", 0.0)
        return "of a model without a price" if usd is None else words.money(usd)

    @property
    def turns(self) -> int:
        """How often its model was asked."""
        return 0 if self.run is None else int(self.run["spent"].get("turns", 0))

    @property
    def parked(self) -> str:
        """Why it waits, and for whom."""
        return "" if self.run is None else PARKED.get(self.run["reason"] or "", self.run["reason"] or "")

    @property
    def failed(self) -> str:
        """Why it failed."""
        failure = "" if self.run is None else str(self.run["failure"] or "")
        kind, _, detail = failure.partition(": ")
        why = FAILED.get(kind, failure)
        return f"{why} (“{detail}”)" if detail and kind in _QUOTED else why

    @property
    def agreement(self) -> tuple[bool, str] | None:
        """Whether the agent's report and the rule's say the same, and in what they do not."""
        if {"rule", "agent"} - self.reports.keys():
            return None
        rule, agent = self.reports["rule"]["report"], self.reports["agent"]["report"]
        measured = {check["check"]: check["assessment"] for check in rule.get("ruled_out") or ()}
        assessments = {check["check"]: check["assessment"] for check in agent.get("checklist") or ()}
        shared_checks = [name for name in measured if assessments.get(name, "unknown") != "unknown"]
        apart = [name for name in shared_checks if measured[name] != assessments[name]]
        same = rule.get("verdict") == agent.get("verdict")
        of_checks = f" and {len(shared_checks)} checks" if shared_checks else ""
        if same and not apart:
            return True, f"Agent and measurement agree on the verdict{of_checks}."
        parts = [] if same else [f"the verdict ({_verdict(agent)} against {_verdict(rule)})"]
        parts += [f"`{name}`" for name in apart[:6]]
        return False, f"Agent and measurement disagree on {', '.join(parts)}."


def _verdict(report: Mapping[str, Any]) -> str:
    verdict = str(report.get("change") or report.get("verdict") or "none")
    return VERDICTS.get(verdict, verdict).lower()


async def agent_of(visit: Visit, kind: RunKind, subject_id: UUID, press: str) -> AgentView:
    """The agent of a finding, or of a case; `press` is where its button leads."""
    reads = RunReads(visit.means.questions)
    run = await reads.latest(visit.project.id, subject_id)
    reports = await reads.both_reports(visit.project.id, subject_id) if kind == "rca" else {}
    where = "" if run is None else f"{visit.base}/agent-runs/{run['id']}"
    return AgentView(
        kind, run, press, f"{press}/part", f"{where}/cancel", reports, visit.means.callers.disabled
    )
