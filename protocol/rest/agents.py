"""Bodies and answers of runs of agents: presses, runs with their events, reports, what a project sets.

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from protocol.agents import CONTEXT_BOUNDS, OUTPUT_BOUNDS, RunKind, RunLimits, RunState, Spent
from protocol.rest.accounts import Instant
from protocol.rest.cases import CaseLimit

Usd = Annotated[float, Meta(gt=0, le=1_000, description="US dollars.")]
OutputTokens = Annotated[
    int, Meta(ge=OUTPUT_BOUNDS[0], le=OUTPUT_BOUNDS[1], description="The longest answer, in tokens.")
]
ContextTokens = Annotated[
    int,
    Meta(ge=CONTEXT_BOUNDS[0], le=CONTEXT_BOUNDS[1], description="What the model reads at once, in tokens."),
]
DayUsd = Annotated[float, Meta(ge=0, le=100_000, description="US dollars a day, in UTC.")]


class RunPressed(msgspec.Struct):
    """The run that a press made, or (`coalesced`) the one that was live already."""

    run: str
    state: RunState
    coalesced: bool
    rca_report_id: str | None = None


class RcaQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Who looks for the cause: an agent, or the rule, which costs nothing."""

    engine: Literal["agent", "rule"] = "agent"


class RunShown(msgspec.Struct, kw_only=True):
    """A run. `reason` says why it is parked, `tool` what it called last."""

    id: str
    kind: RunKind
    subject_id: str
    report_id: str | None
    state: RunState
    reason: str | None
    requested_by: str
    requested_at: Instant
    due_at: Instant
    attempt: int
    refunds: int
    model: str | None
    integration_id: str | None
    tool: str | None
    failure: str | None
    outcome: str | None
    started_at: Instant | None
    finished_at: Instant | None
    limits: RunLimits | None
    spent: Spent
    cancelling: bool


class RunStep(msgspec.Struct):
    """One event of a run; `claim` counts the times it was begun."""

    claim: int
    seq: int
    at: Instant
    kind: str
    details: dict[str, Any]


class RunWhole(RunShown, kw_only=True):
    """A run with its events."""

    events: list[RunStep]


class RunPage(msgspec.Struct):
    """A page of runs, newest first."""

    runs: list[RunShown]
    next_cursor: str | None


class RunsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which runs."""

    kind: RunKind | None = None
    state: RunState | None = None
    limit: CaseLimit = 50
    cursor: str | None = None


class RunCancelled(msgspec.Struct):
    """It ends: at once, or when its holder hears of it."""

    cancelled: bool = True


class ReportShown(msgspec.Struct, kw_only=True):
    """A report of root-cause analysis."""

    id: str
    case_id: str
    case: str
    engine: Literal["rule", "agent"]
    status: Literal["running", "done", "failed"]
    verdict: str | None
    failure: str | None
    started_at: Instant
    finished_at: Instant | None


class ReportWhole(ReportShown, kw_only=True):
    """A report with what it says, and the run that made it."""

    run_id: str | None
    report: dict[str, Any] | None


class ReportList(msgspec.Struct):
    """The newest reports of the project."""

    reports: list[ReportShown]


class ModelChosen(msgspec.Struct, forbid_unknown_fields=True):
    """A model, and the integration that leads to it. Its bounds are null where they are the usual ones."""

    integration_id: Annotated[str, Meta(max_length=64)]
    model: Annotated[str, Meta(min_length=1, max_length=200)]
    output_tokens: OutputTokens | None = None
    context_tokens: ContextTokens | None = None


class ModelsChosen(msgspec.Struct, forbid_unknown_fields=True):
    """By kind of run; without one the runner's own environment counts."""

    triage: ModelChosen | None = None
    rca: ModelChosen | None = None


class RepoChosen(msgspec.Struct, forbid_unknown_fields=True):
    """The repository of the application, at a branch, tag or commit, and the integration that opens it."""

    clone_url: Annotated[str, Meta(min_length=9, max_length=500, description="Its https address.")]
    ref: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    integration_id: Annotated[str, Meta(max_length=64)] | None = None


class AgentSettingsShown(msgspec.Struct, forbid_unknown_fields=True):
    """What a project sets of its agents, all at once. `run_usd` null: 2 for triage, 4 for root causes."""

    triage_automatic: bool = False
    models: ModelsChosen = msgspec.field(default_factory=ModelsChosen)
    run_usd: Usd | None = None
    day_usd: DayUsd = 20.0
    repository: RepoChosen | None = None
