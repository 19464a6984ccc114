"""Runs of agents, as the store, the launcher and the fronts speak of them.

Shapes and closed lists only, each once: kinds and states of a run, what parks it, what it may use and has
used, the lease by which somebody holds it. `protocol/running.py` has what is said to a runner.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, get_args
from uuid import UUID

import attrs
import msgspec

RunKind = Literal["triage", "rca"]
RUN_KINDS: Final[tuple[RunKind, ...]] = get_args(RunKind)

#: `parked` waits for people, `queued` for its turn.
RunState = Literal["queued", "parked", "running", "done", "failed", "cancelled"]

#: Why a run is parked.
ParkedFor = Literal[
    "no_provider", "rejected_credential", "no_such_model", "day_budget", "misconfigured_runner"
]
PARKED_FOR: Final[tuple[ParkedFor, ...]] = get_args(ParkedFor)

#: A lease, unless it is renewed; three renewals fit into it.
LEASE_S: Final = 60.0
ATTEMPTS: Final = 5
#: A run that was given back so often is failed.
REFUNDS: Final = 20
#: What parked it is tried again after so long, whether anybody changed anything or not.
PARKED_S: Final = 1800.0
#: What limits rates is asked again after so long.
LIMITED_S: Final = 60.0
#: The longest reason of a failure that is kept.
FAILURE_CHARS: Final = 500
#: Events of a run that are kept and shown.
EVENTS_KEPT: Final = 1_000

#: The purpose of a key that a run holds, by kind. Such a key opens `POST /mcp` and nothing else.
PURPOSES: Final[Mapping[RunKind, str]] = {"triage": "agent triage", "rca": "agent rca"}
#: The tools that a run may call: those that read what was traced. Lists of findings and cases are not among
#: them, so that no verdict leans on what somebody said of another.
RUN_TOOLS: Final[tuple[str, ...]] = (
    "get_project",
    "list_call_sites",
    "list_failure_modes",
    "get_finding",
    "get_finding_evidence",
    "list_traces",
    "get_trace",
    "list_spans",
    "get_span",
    "list_sessions",
    "get_session",
    "describe_dataset",
    "query_count",
    "query_timeseries",
    "query_facets",
    "query_search",
    "compare",
)


def pause_s(attempt: int) -> float:
    """How long a run rests after its n-th attempt failed: 2, 4, 8, 16 s."""
    return float(2 ** min(max(attempt, 1), 4))


#: The longest answer of a model, and what it reads at once, where nobody says; and what may be said.
OUTPUT_TOKENS: Final = 8_000
CONTEXT_TOKENS: Final = 150_000
OUTPUT_BOUNDS: Final = (500, 128_000)
CONTEXT_BOUNDS: Final = (16_000, 2_000_000)


#: An estimate of tokens from bytes that is never too low: words have more than two bytes.
BYTES_A_TOKEN: Final = 2


class RunLimits(msgspec.Struct, frozen=True):
    """What a run may use. `usd` counts only where the model has a price.

    `output_tokens` and `context_tokens` are bounds of the model: of one answer, and of all that it reads at
    once with the answer to it.
    """

    seconds: float
    turns: int
    tokens: int
    usd: float
    output_tokens: int = OUTPUT_TOKENS
    context_tokens: int = CONTEXT_TOKENS

    def of_model(self, output_tokens: int | None, context_tokens: int | None) -> RunLimits:
        """With the bounds of a model; None: those that are there."""
        return msgspec.structs.replace(
            self,
            output_tokens=output_tokens or self.output_tokens,
            context_tokens=context_tokens or self.context_tokens,
        )


DEFAULT_LIMITS: Final[Mapping[RunKind, RunLimits]] = {
    "triage": RunLimits(1_800, 52, 600_000, 2.0),
    "rca": RunLimits(900, 40, 800_000, 4.0),
}


class Spent(msgspec.Struct, frozen=True):
    """What a run has used; `usd` is None where its model has no price."""

    turns: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    usd: float | None = 0.0

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input + self.output + self.cache_read + self.cache_write

    def less(self, earlier: Spent) -> Spent:
        """What came since."""
        usd = None if self.usd is None or earlier.usd is None else self.usd - earlier.usd
        return Spent(
            self.turns - earlier.turns,
            self.input - earlier.input,
            self.output - earlier.output,
            self.cache_read - earlier.cache_read,
            self.cache_write - earlier.cache_write,
            usd,
        )

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Spent(
            self.turns + other.turns,
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            usd,
        )


@attrs.frozen
class ModelChoice:
    """The model that a project's runs of a kind use, its bounds, and the integration that leads to it."""

    integration_id: UUID
    model: str
    output_tokens: int | None = None
    context_tokens: int | None = None


@attrs.frozen
class RepoChoice:
    """The repository of a project's application, and the integration that opens it (None: anybody may)."""

    clone_url: str
    ref: str | None = None
    integration_id: UUID | None = None


@attrs.frozen
class AgentSettings:
    """What a project sets of its agents. `run_usd` None: the default of the kind."""

    triage_automatic: bool = False
    models: Mapping[RunKind, ModelChoice] = attrs.field(factory=dict)
    run_usd: float | None = None
    day_usd: float = 20.0
    repository: RepoChoice | None = None

    def limits(self, kind: RunKind) -> RunLimits:
        """What one run of a kind may use."""
        limits = DEFAULT_LIMITS[kind]
        return limits if self.run_usd is None else msgspec.structs.replace(limits, usd=self.run_usd)


@attrs.frozen
class Pressed:
    """The run that a press made, or the one that was live already."""

    run_id: UUID
    state: RunState
    coalesced: bool
    #: Of a root-cause analysis.
    report_id: UUID | None = None


@attrs.frozen
class NotPressed:
    """Why a press made no run, and who was there first."""

    code: Literal["NOT_FOUND", "CLOSED", "OVERRULED"]
    by: str | None = None
    at: datetime | None = None


@attrs.frozen
class RunLease:
    """A run that somebody holds until a moment, by a token that only they know.

    `claim` names what is asked of the runner: it goes up with each claim and stays when somebody takes over
    from a holder who died, who finds the same work under way. `spent` is that of earlier claims, `used` what
    this one had used when its last holder was last heard of.
    """

    project_id: int
    run_id: UUID
    kind: RunKind
    subject_id: UUID
    token: UUID = attrs.field(repr=False)
    attempt: int
    claim: int
    limits: RunLimits
    settings: AgentSettings
    spent: Spent
    used: Spent = attrs.field(factory=Spent)
    taken_over: bool = False
    #: What this claim was asked with, less its secrets, if its last holder got that far.
    request: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    key_id: str | None = None
    requested_by: str = "system"

    @property
    def integration_id(self) -> UUID | None:
        """Whose model does it; None: the runner's environment chooses."""
        choice = self.settings.models.get(self.kind)
        return None if choice is None else choice.integration_id

    @property
    def name(self) -> str:
        """What the runner knows it by."""
        return run_name(self.run_id, self.claim)


@attrs.frozen
class RunAbandoned:
    """A run that was ended in the store after its holder died: a runner may still have it, by this name."""

    name: str


def run_name(run_id: UUID, claim: int) -> str:
    """What a runner knows a claim of a run by."""
    return f"{run_id}.{claim}"


@attrs.frozen
class RunHeld:
    """A lease that was renewed; `cancelled` when somebody wants its run to end."""

    cancelled: bool
