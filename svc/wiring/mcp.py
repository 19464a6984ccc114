"""The MCP endpoint of a service: its keys, what its tools read, and whether they go beyond the specification.

Called once by `svc.wiring.service`. Never serves.
"""

from __future__ import annotations

from actors.keys import Keys
from svc.config.table import Settings
from svc.front.auth.calls import Context
from svc.front.mcp.endpoint import Mcp
from svc.front.mcp.reads import Reads
from svc.runtime.clock import now
from svc.store.postgres.pools import Pools
from svc.store.reads.questions.query import QueryStore
from svc.wiring.runner import surrounding


def mcp_endpoint(settings: Settings, pools: Pools, keys: Keys, context: Context, queries: QueryStore) -> Mcp:
    """The endpoint; it answers 404 where authentication is disabled, since no key names a project then."""
    reads = Reads.of(
        pools.questions,
        queries,
        now,
        context.installed,
        surrounding(settings).ambient,
        pools.history,
        extensions=settings.mcp_extensions,
    )
    return Mcp(
        keys,
        reads,
        context.concurrency,
        enabled=not settings.auth_disabled,
        surroundings=context.surroundings,
        landing=context.landing,
        oauth=context.client_documents is not None,
    )
