"""What does a run: its provider, its tools and its budget put together.

Owns `AgentLoop`, which the table of runs calls. The credential of the provider and the key of the project
stay in its locals, and are scrubbed from what the run answers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import trio

from protocol.agents import Spent
from protocol.running import RunRequest
from svc.domain.pricing.prices import PriceBook
from svc.outside.mcp import McpAway, McpClient
from svc.outside.models.provider import ModelProvider, ModelRefused, Surrounding, asked_by
from svc.runner.conversation_loop import Conversation, shown_bytes
from svc.runner.failing import RunFailed
from svc.runner.meter import Meter
from svc.runner.repository import Repository
from svc.runner.runs import RunnerRun
from svc.runner.sandbox import SandboxBackend
from svc.runner.sandboxes.local_cli import LocalCli
from svc.runner.toolbox import Toolbox

#: What closing a sandbox may take.
CLOSE_S: Final = 30.0


@attrs.frozen
class AgentLoop:
    """Runs the agent loop for each run."""

    around: Surrounding
    backend: SandboxBackend
    prices: PriceBook
    now: Callable[[], datetime]
    cli: LocalCli | None = None

    async def work(self, run: RunnerRun) -> dict[str, Any]:
        """The answer of a run. Raises `RunFailed`."""
        request = run.request
        assert request is not None
        if self.cli is not None and request.credential.provider in ("environment", "local"):
            return await self.cli.work(run)
        try:
            provider = await asked_by(request.credential, request.model, self.around, self.now)
        except ModelRefused as refused:
            secrets = (request.credential.secret, self.around.api_key, self.around.bearer_key)
            raise RunFailed.of(refused, [text for text in secrets if text]) from None
        run.model = provider.model
        limits = request.limits
        if request.credential.provider == "environment":
            limits = limits.of_model(self.around.output_tokens, self.around.context_tokens)
        meter = Meter(limits, lambda used: self._price(provider, used), run.book)
        project = McpClient(partial(_mcp_address, run), request.mcp.tools)
        request = await _instructed(request, project)
        tools = Toolbox(
            project,
            self.backend,
            request.files,
            request.json_schema,
            run.name,
            run.tell,
            lambda: meter.left_s,
            None
            if request.repo is None
            else Repository(request.repo, self.around.rule, lambda: meter.left_s),
            long_bytes=shown_bytes(limits),
        )
        try:
            return await Conversation(
                request, provider, tools, meter, run.tell, _literal(request, provider)
            ).run()
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await tools.aclose()

    def _price(self, provider: ModelProvider, used: Spent) -> float | None:
        priced = self.prices.price(
            provider=provider.price_provider or None,
            model=provider.model,
            at=self.now(),
            input_tokens=used.input,
            output_tokens=used.output,
            cache_read_tokens=used.cache_read,
            cache_write_tokens=used.cache_write,
        )
        return None if priced.total_cost is None else float(priced.total_cost)


async def _instructed(request: RunRequest, project: McpClient) -> RunRequest:
    """The request with what the project's server tells its clients. Raises `RunFailed`."""
    try:
        instructions = await project.instructions()
    except McpAway as away:
        raise RunFailed("mcp_away", str(away)) from None
    if not instructions:
        return request
    return msgspec.structs.replace(request, system_prompt=f"{request.system_prompt}\n\n{instructions}")


def _mcp_address(run: RunnerRun) -> tuple[str, str]:
    """Where the project is read: whoever took over the run in the service came with another key."""
    assert run.request is not None
    return run.request.mcp.url, run.request.mcp.token


def _literal(request: RunRequest, provider: ModelProvider) -> list[str]:
    secrets = [request.mcp.token, request.credential.secret, provider.secret]
    if request.repo is not None:
        secrets.append(request.repo.secret)
    if provider.keys is not None:
        secrets += [provider.keys.secret_key, provider.keys.session_token]
    return [text for text in secrets if text]
