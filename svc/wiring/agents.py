"""Wiring of agents: the launcher's stores and requests, and where the runner is.

`StoredRunRequests` makes requests: what is claimed, whose model, which key. `agent_loops` builds the actors.

Secrets: `StoredRunRequests` opens an integration's secret at the claim and hands it to one request.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

import attrs
import msgspec
import trio

from actors.launcher import Launcher, LauncherState
from actors.ports import RunnerHost, RunnerLink
from actors.runner_child import NamedRunner, RunnerChild
from actors.supervision import Actor, Board, Vitals
from protocol.agents import PURPOSES, RUN_TOOLS, ParkedFor, RunLease
from protocol.running import Credential, McpPlace, Provider, RepoPlace, RunRequest
from protocol.sealed import Lost
from protocol.storage import Eviction
from svc.config.table import Settings
from svc.domain.agents.answers import cited_ids, completed, form_faults, grounded, tidied, tidied_text
from svc.domain.agents.briefs import brief_of
from svc.domain.agents.repositories import GIT_USERS, is_hosted_by
from svc.front.ports import Seals
from svc.outside.runner import RunnerClient
from svc.runtime.child import child
from svc.runtime.clock import now
from svc.store.accounts.audit import SYSTEM as ACTOR
from svc.store.accounts.integrations import Integration
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.agents.claims import ClaimReads
from svc.store.agents.outcomes import OutcomeStore
from svc.store.agents.runs import PostgresRunStore
from svc.store.postgres.database import Database
from svc.wiring.runner import COMPOSED_RUNNER, surrounding

#: A key of a run lives this much longer than the run may take.
KEY_S: Final = 300.0
#: What a runner may note of how an answer came about.
NOTE_CHARS: Final = 300


@attrs.frozen
class StoredRunRequests:
    """Implements `RunRequests`. `mcp_url` says where the runner reaches this service; `evict` forgets a key
    here."""

    database: Database
    keys: PostgresKeyStore
    seals: Seals
    mcp_url: Callable[[], str]
    evict: Callable[[Eviction], None]

    async def request(self, lease: RunLease) -> RunRequest | ParkedFor | str:
        """What the run is asked, without a key of the project."""
        reads = ClaimReads(self.database)
        facts = await reads.facts(lease)
        if facts is None:
            return "what it is about is gone"
        choice = lease.settings.models.get(lease.kind)
        credential = Credential()
        if choice is not None:
            integration = await reads.integration(lease, choice.integration_id)
            if integration is None:
                return "no_provider"
            secret = self._opened(integration)
            if isinstance(secret, Lost):
                return "rejected_credential"
            credential = Credential(
                cast(Provider, integration.provider),
                integration.base_url,
                integration.region,
                integration.username,
                secret,
            )
        limits = lease.limits
        if choice is not None:
            limits = limits.of_model(choice.output_tokens, choice.context_tokens)
        repo = await self._repo(lease, reads, facts.finding)
        brief = brief_of(
            lease.kind,
            facts.finding,
            facts.refs,
            lease.limits,
            facts.rule_report,
            repository=repo is not None,
        )
        return RunRequest(
            kind=lease.kind,
            files=dict(brief.files),
            system_prompt=brief.system_prompt,
            prompt=brief.prompt,
            json_schema=dict(brief.json_schema),
            model=None if choice is None else choice.model,
            credential=credential,
            mcp=McpPlace(self.mcp_url(), "", RUN_TOOLS),
            limits=limits,
            checklist=tuple(brief.checklist),
            known_ids=tuple(brief.known_ids),
            repo=repo,
        )

    def _opened(self, integration: Integration) -> str | Lost | None:
        return (
            None if integration.sealed is None else self.seals.open(integration.sealed, integration.purpose)
        )

    async def _repo(self, lease: RunLease, reads: ClaimReads, finding: Mapping[str, Any]) -> RepoPlace | None:
        """The project's repository, for whoever looks for a cause. A credential goes to its own host only."""
        choice = lease.settings.repository
        if choice is None or lease.kind != "rca":
            return None
        location = RepoPlace(
            choice.clone_url, choice.ref, onset_at=str(finding.get("onset_at") or "") or None
        )
        if choice.integration_id is None:
            return location
        integration = await reads.integration(lease, choice.integration_id)
        if integration is None or not is_hosted_by(
            choice.clone_url, integration.provider, integration.base_url
        ):
            return location
        secret = self._opened(integration)
        username = integration.username or GIT_USERS.get(integration.provider)
        return msgspec.structs.replace(
            location, username=username, secret=None if isinstance(secret, Lost) else secret
        )

    async def mint(self, lease: RunLease, request: RunRequest) -> tuple[str, RunRequest]:
        """A key that reads the project until shortly after the run's deadline."""
        until = now() + timedelta(seconds=lease.limits.seconds + KEY_S)
        creation = await self.keys.create(
            lease.project_id,
            f"agent run {lease.name}",
            "admin",
            actor=ACTOR,
            purpose=PURPOSES[lease.kind],
            expires_at=until,
        )
        await PostgresRunStore(self.database).holds_key(lease, creation.key.id)
        mcp = msgspec.structs.replace(request.mcp, token=creation.plaintext)
        return creation.key.id, msgspec.structs.replace(request, mcp=mcp)

    async def revoke(self, lease: RunLease, key_id: str) -> None:
        """The key opens nothing any more, here at once and elsewhere when they hear."""
        await self.keys.revoke(lease.project_id, key_id, actor=ACTOR, purpose=PURPOSES[lease.kind])
        self.evict(Eviction(key_id=key_id))

    async def sweep(self) -> int:
        """Revoke keys that nobody came to revoke."""
        return await self.keys.sweep()

    async def checked(
        self, lease: RunLease, request: RunRequest, result: Mapping[str, Any]
    ) -> Mapping[str, Any] | str:
        """The answer as it counts: of its form, on what can be looked up."""
        answer = {name: value for name, value in result.items() if name not in ("unsupported", "notes")}
        faults = form_faults(lease.kind, answer)
        if faults:
            return faults[0]
        marked, noted = result.get("unsupported"), result.get("notes")
        answer = tidied(answer)
        if lease.kind == "rca":
            answer = completed(answer, request.checklist)
        cited = await ClaimReads(self.database).look_up(lease, _plausible(cited_ids(answer)))
        answer = grounded(answer, existing=cited.existing, evidence=cited.evidence, before=cited.before)
        if lease.kind == "triage" and answer["verdict"] != "unclear" and not answer["citations"]:
            return "nothing it cites is in the project"
        numbers = [str(number)[:40] for number in marked[:200]] if isinstance(marked, list) else []
        notes = [tidied_text(str(note)[:NOTE_CHARS]) for note in noted[:4]] if isinstance(noted, list) else []
        return {**answer, "unsupported": numbers, "notes": notes}


def _plausible(ids: set[str]) -> list[str]:
    return [id_ for id_ in ids if len(id_) in (16, 32) and set(id_) <= set("0123456789abcdef")]


def mcp_url(settings: Settings, port: int) -> str:
    """Where the runner reaches this service."""
    if settings.mcp_url is not None:
        return settings.mcp_url
    if settings.does_tls:
        return f"https://{settings.site_domain}/mcp"
    host = settings.http_bind[0]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - it is compared with
        host = "127.0.0.1" if settings.launcher_url is None and settings.local else socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def ambient(settings: Settings) -> str | None:
    """The provider that agents have by the environment, as far as this process can tell; for people."""
    mode = surrounding(settings).mode
    return None if mode == "none" else mode


def has_child(settings: Settings) -> bool:
    """Whether the runner is a child of this process: a local start that names none."""
    return settings.launcher_url is None and settings.local


def launcher_state(settings: Settings) -> LauncherState:
    """What health shows of the launcher, from the start on."""
    if has_child(settings):
        return LauncherState("a child of this process, started when a run needs it")
    return LauncherState(settings.launcher_url or COMPOSED_RUNNER)


Loop = tuple[Callable[[], Actor], Vitals]


def agent_loops(
    settings: Settings, database: Database, requests: StoredRunRequests, state: LauncherState, board: Board
) -> list[Loop]:
    """The launcher, and the runner where that is a child. None while nobody can open a project to a run."""
    if settings.auth_disabled:
        return []
    vitals = board.enrol("agent-launcher", spare=True)
    loops: list[Loop] = []
    host: RunnerHost
    if has_child(settings):
        key = secrets.token_urlsafe(32)
        runner = board.enrol("sandbox-runner", spare=True)
        child = RunnerChild(
            launch=lambda: _child(key),
            connect=lambda url: cast(RunnerLink, RunnerClient(url, key)),
            # One that can do no run stays: while it is there, it is asked whether it can again.
            busy=lambda: state.in_hand > 0 or state.fault is not None,
            report=partial(setattr, state, "child_fault"),
            vitals=runner,
        )
        host = child
        loops.append((lambda: child, runner))
    else:
        url = settings.launcher_url or COMPOSED_RUNNER
        host = NamedRunner(RunnerClient(url, settings.runner_key or ""))
    runs, outcomes = PostgresRunStore(database), OutcomeStore(database)
    loops.append(
        (
            lambda: Launcher(
                store=runs,
                outcomes=outcomes,
                requests=requests,
                host=host,
                now=now,
                state=state,
                vitals=vitals,
            ),
            vitals,
        )
    )
    return loops


@asynccontextmanager
async def _child(key: str) -> AsyncIterator[trio.abc.Stream]:
    env = {"SANDBOX_RUNNER_KEY": key, "SANDBOX_RUNNER_BIND": "127.0.0.1:0"}
    async with child("svc", "sandbox-runner", "--child", env=env) as stream:
        yield stream
