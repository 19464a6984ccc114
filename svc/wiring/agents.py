"""Wiring of agents: the launcher, and where the runner is.

What a run is asked is in `svc.application.run_requests`; `agent_loops` builds the actors.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import cast

from actors.keys import Keys
from actors.launcher import Launcher, LauncherState
from actors.ports import RunnerHost, RunnerLink
from actors.runner_child import NamedRunner, RunnerChild
from actors.supervision import Board, Loop
from svc.application.addresses import mcp_url, runner_url
from svc.application.run_requests import StoredRunRequests
from svc.config.table import Settings
from svc.outside.runner import RunnerClient
from svc.runtime.child import child
from svc.runtime.clock import now
from svc.secrets.sealing import Sealer
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.agents.outcomes import OutcomeStore
from svc.store.agents.runs import PostgresRunStore
from svc.store.postgres.database import Database


def launcher_state(settings: Settings) -> LauncherState:
    """What health shows of the launcher, from the start on."""
    return LauncherState(runner_url(settings) or "a child of this process, started when a run needs it")


def run_requests(
    settings: Settings, database: Database, key_store: PostgresKeyStore, keys: Keys, port: Callable[[], int]
) -> StoredRunRequests:
    """What runs are asked; `port` is that of the front."""
    return StoredRunRequests(
        database, key_store, Sealer.of(settings), lambda: mcp_url(settings, port()), keys.evict
    )


def agent_loops(
    settings: Settings, database: Database, requests: StoredRunRequests, state: LauncherState, board: Board
) -> list[Loop]:
    """The launcher, and the runner where that is a child. None while nobody can open a project to a run."""
    if settings.auth_disabled:
        return []
    loops: list[Loop] = []
    host: RunnerHost
    url = runner_url(settings)
    if url is None:
        key = secrets.token_urlsafe(32)
        runner = board.enrol("sandbox-runner", spare=True)
        env = {"SANDBOX_RUNNER_KEY": key, "SANDBOX_RUNNER_BIND": "127.0.0.1:0"}
        host = runner_child = RunnerChild(
            launch=partial(child, "svc", "sandbox-runner", "--child", env=env),
            connect=lambda url: cast(RunnerLink, RunnerClient(url, key)),
            # One that can do no run stays: while it is there, it is asked whether it can again.
            busy=lambda: state.in_hand > 0 or state.fault is not None,
            report=partial(setattr, state, "child_fault"),
            vitals=runner,
        )
        loops.append((lambda: runner_child, runner))
    else:
        host = NamedRunner(RunnerClient(url, settings.runner_key or ""))
    runs, outcomes = PostgresRunStore(database), OutcomeStore(database)
    launcher = board.spare(
        "agent-launcher",
        partial(Launcher, store=runs, outcomes=outcomes, requests=requests, host=host, now=now, state=state),
    )
    return [*loops, launcher]
