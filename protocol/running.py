"""What the service and a runner of agents say to each other, as JSON over HTTP.

Owns the bodies of `PUT /v1/runs/{name}` and its answers, the events of a run, and the older synchronous form.
A runner keeps them in memory only.

Secrets: a request holds the credentials of a model provider and a Git host and a key of the project. None is
shown by `repr`, nor part of the digest by which a repeated request is known.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import attrs
import msgspec
from msgspec import Meta

from protocol.agents import RunKind, RunLimits, Spent

#: What a request may weigh.
REQUEST_BYTES: Final = 8 * 1024 * 1024
#: Long polls wait no longer than this.
WAIT_S: Final = 25.0
#: Runs that a runner has under way, those that wait, and those that are over and kept.
CAPACITY: Final = 2
WAITING: Final = 8
KEPT: Final = 256
KEPT_S: Final = 3_600.0
#: A run whose events nobody reads for so long is cancelled: whoever wanted it is gone.
UNREAD_S: Final = 120.0
DETAIL_CHARS: Final = 200
#: Events that a run holds; what comes beyond them is counted only.
EVENTS_HELD: Final = 2_000

RunnerState = Literal["waiting", "running", "done", "failed", "cancelled"]
OVER: Final[tuple[RunnerState, ...]] = ("done", "failed", "cancelled")

#: How a run fails. The first six are no fault of the attempt.
FailureKind = Literal[
    "no_provider",
    "rejected_credential",
    "no_such_model",
    "provider_away",
    "rate_limited",
    "sandbox_away",
    "timeout",
    "budget",
    "bad_output",
    "bad_answer",
    "provider_refused",
    "sandbox_died",
    "mcp_away",
    "broken",
]

#: By what a provider is asked; `environment`: by what the runner itself knows.
Provider = Literal[
    "environment", "anthropic", "aws_bedrock", "openai", "openai_compatible", "google", "local"
]

Text = Annotated[str, Meta(max_length=2_000_000)]


class Credential(msgspec.Struct, frozen=True):
    """How a model provider is reached."""

    provider: Provider = "environment"
    base_url: Annotated[str, Meta(max_length=500)] | None = None
    region: Annotated[str, Meta(max_length=64)] | None = None
    username: Annotated[str, Meta(max_length=200)] | None = None
    secret: Annotated[str, Meta(max_length=8_000)] | None = None

    def __repr__(self) -> str:
        return f"Credential({self.provider}, …)"


class McpPlace(msgspec.Struct, frozen=True):
    """Where the project is read, the key that opens it, and the tools that may be called."""

    url: Annotated[str, Meta(max_length=500)]
    token: Annotated[str, Meta(max_length=200)]
    tools: Annotated[tuple[str, ...], Meta(max_length=64)]

    def __repr__(self) -> str:
        return f"McpPlace({self.url}, …)"


class RepoPlace(msgspec.Struct, frozen=True):
    """The repository of the application, at which branch, tag or commit, and what opens it."""

    clone_url: Annotated[str, Meta(max_length=500)]
    ref: Annotated[str, Meta(max_length=200)] | None = None
    username: Annotated[str, Meta(max_length=200)] | None = None
    secret: Annotated[str, Meta(max_length=8_000)] | None = None
    #: When what is looked into began.
    onset_at: Annotated[str, Meta(max_length=40)] | None = None

    def __repr__(self) -> str:
        return f"RepoPlace({self.clone_url}, …)"


class RunRequest(msgspec.Struct, frozen=True):
    """All that a runner needs of a run."""

    kind: RunKind
    files: dict[str, Text]
    system_prompt: Text
    prompt: Text
    json_schema: dict[str, Any]
    model: Annotated[str, Meta(max_length=200)] | None
    credential: Credential
    mcp: McpPlace
    limits: RunLimits
    #: Ids of the checklist that an answer goes by.
    checklist: tuple[str, ...] = ()
    #: Ids of traces, spans and sessions that the files name: the answer may cite them.
    known_ids: tuple[str, ...] = ()
    repo: RepoPlace | None = None

    def digest(self) -> str:
        """By what a repeated request is known; whoever takes over has another key of the project."""
        plain = msgspec.structs.replace(
            self,
            mcp=msgspec.structs.replace(self.mcp, token="", url=""),
        ).plain()
        return sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()

    def plain(self) -> RunRequest:
        """The request without its secrets, as it may be kept."""
        return self.opened(None, None, "")

    def opened(self, secret: str | None, repo_secret: str | None, token: str) -> RunRequest:
        """The request with these secrets: of its provider, its repository, and its key of the project."""
        repo = None if self.repo is None else msgspec.structs.replace(self.repo, secret=repo_secret)
        return msgspec.structs.replace(
            self,
            credential=msgspec.structs.replace(self.credential, secret=secret),
            repo=repo,
            mcp=msgspec.structs.replace(self.mcp, token=token),
        )


class RunFailure(msgspec.Struct, frozen=True):
    """Why a run failed; `detail` quotes no secret, and of a stranger only what was scrubbed."""

    kind: FailureKind
    detail: str = ""


class RunnerEvent(msgspec.Struct, frozen=True):
    """One thing that happened; what belongs to its kind stands in `details`."""

    seq: int
    at: str
    kind: Literal[
        "accepted",
        "sandbox_up",
        "without_scripts",
        "without_repository",
        "turn",
        "tool",
        "script",
        "retry",
        "cut",
        "refused",
        "wrapping_up",
        "ended",
    ]
    details: dict[str, Any] = {}

    def told(self) -> dict[str, Any]:
        """As it is sent: flat."""
        return {"seq": self.seq, "at": self.at, "kind": self.kind, **self.details}


class RunStands(msgspec.Struct, frozen=True):
    """A run as it stands; `position` counts those that wait before it, `known`: it was begun before."""

    state: RunnerState
    position: int = 0
    known: bool = False


class RunEvents(msgspec.Struct, frozen=True):
    """What happened since the last look."""

    state: RunnerState
    next: int
    alive_at: str
    spent: Spent
    events: list[dict[str, Any]]


class RunResult(msgspec.Struct, frozen=True):
    """A run as it ended, or stands."""

    state: RunnerState
    spent: Spent
    model: str | None = None
    result: dict[str, Any] | None = None
    failure: RunFailure | None = None


class RunnerHealth(msgspec.Struct, frozen=True):
    """What a runner says of itself to anybody.

    `scripts_fault`: why scripts cannot be run; `fault`: why no run can be done at all. A runner of a release
    before says neither.
    """

    ok: bool
    version: str
    backend: str
    scripts: bool
    provider_mode: str
    running: int
    queued: int
    capacity: int
    scripts_fault: str = ""
    fault: str = ""


class RunnerError(msgspec.Struct, frozen=True):
    """Why a runner refuses."""

    error: str
    kind: str
    detail: str = ""


@attrs.frozen
class RunnerRefused:
    """The runner answered, and not as hoped. `kind` is its own word."""

    status: int
    kind: str = ""


@attrs.frozen
class RunnerAway:
    """Nobody answered; the text is for the operator."""

    said: str


class OldAnswer(msgspec.Struct, frozen=True):
    """The answer of the older synchronous form. The names are that interface's."""

    raw: dict[str, Any]
    turns: int
    startMs: int


class OldFailure(msgspec.Struct, frozen=True):
    """A run that failed, in the older synchronous form. The names are that interface's."""

    error: str
    kind: str
    timeout: bool
    error_class: str
    detail: str
    elapsed_ms: int
    timeout_ms: int
    usage: Spent
