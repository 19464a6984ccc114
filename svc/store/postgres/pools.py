"""The pools of database connections, one for each kind of work, so that none can starve another.

Owns how many connections each kind gets and how long its statements may run. All of them together, with those
of the decoder processes and of a command beside the service, fit what the server has, whatever the settings
say. `svc.wiring.service` hands each room the pool of its kind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import attrs

from protocol.database_address import Address
from svc.store.postgres.database import Database
from svc.store.postgres.replica import ReplicaFirst

#: What the embedded server has (`svc.store.postgres.embedded.cluster`), and what we take of a served one,
#: which comes with a hundred.
EMBEDDED_CONNECTIONS: Final = 43
SERVED_CONNECTIONS: Final = 80

#: Those the server keeps for its superuser; the two that listen, the one of the start, the one that ends
#: cancelled statements; a command beside the service.
RESERVED_CONNECTIONS: Final = 3
OTHER_CONNECTIONS: Final = 4
COMMAND_CONNECTIONS: Final = 4

ADMISSION_CONNECTIONS: Final = 5
QUESTION_CONNECTIONS: Final = 8
UPKEEP_CONNECTIONS: Final = 5
#: The same with little memory, of which each connection takes up to 8 MB at the server.
SMALL_ADMISSION_CONNECTIONS: Final = 2
SMALL_QUESTION_CONNECTIONS: Final = 3
SMALL_UPKEEP_CONNECTIONS: Final = 4
SMALL_DECODER_CONNECTIONS: Final = 2
#: Of the service itself when decoder processes write the spans: dead letters go through these.
LETTER_CONNECTIONS: Final = 2
#: Of the detecting process.
DETECTING_CONNECTIONS: Final = 3
#: Groups that a decoder has in hand at once need one each.
DECODER_CONNECTIONS: Final = 4

#: Longest statements by kind, ended by the server itself should nobody else end them. A little more than
#: what the unit of work gets.
ADMISSION_STATEMENT_S: Final = 12.0
QUESTION_STATEMENT_S: Final = 32.0
INGEST_STATEMENT_S: Final = 62.0
UPKEEP_STATEMENT_S: Final = 602.0


@attrs.frozen
class PoolSizes:
    """Connections by kind; `decoders` is how many processes there may be, each with `per_decoder`.

    Beside them the detecting process has `DETECTING_CONNECTIONS`.
    """

    admission: int
    questions: int
    ingest: int
    upkeep: int
    decoders: int
    per_decoder: int

    @property
    def total(self) -> int:
        """All connections that there can be at once, those of others included."""
        own = self.admission + self.questions + self.ingest + self.upkeep
        fixed = RESERVED_CONNECTIONS + OTHER_CONNECTIONS + COMMAND_CONNECTIONS + DETECTING_CONNECTIONS
        return own + self.decoders * self.per_decoder + fixed


def pool_sizes(*, decoders: int, drainers: int, embedded: bool, small: bool = False) -> PoolSizes:
    """The sizes for these settings; `small` for a machine with little memory."""
    most = EMBEDDED_CONNECTIONS if embedded else SERVED_CONNECTIONS
    fixed = PoolSizes(ADMISSION_CONNECTIONS, QUESTION_CONNECTIONS, 0, UPKEEP_CONNECTIONS, 0, 0)
    per_decoder = DECODER_CONNECTIONS
    if small:
        fixed = PoolSizes(
            SMALL_ADMISSION_CONNECTIONS, SMALL_QUESTION_CONNECTIONS, 0, SMALL_UPKEEP_CONNECTIONS, 0, 0
        )
        per_decoder = SMALL_DECODER_CONNECTIONS
    available = most - fixed.total
    if not decoders:
        return attrs.evolve(fixed, ingest=min(drainers + LETTER_CONNECTIONS, available))
    available -= LETTER_CONNECTIONS
    decoders = min(decoders, available)
    share = max(1, min(per_decoder, available // decoders))
    return attrs.evolve(fixed, ingest=LETTER_CONNECTIONS, decoders=decoders, per_decoder=share)


@attrs.frozen
class Pools:
    """`admission` checks keys, sessions and health, and serves settings; the others say what they are for."""

    admission: Database
    questions: Database
    ingest: Database
    upkeep: Database
    #: The replica of `SVC_READ_URL`, if there is one.
    replica: ReplicaFirst | None = None

    @property
    def history(self) -> Database:
        """Where spans, traces and sessions are read for queries, tools and pages."""
        return self.questions if self.replica is None else self.replica

    def state(self) -> dict[str, dict[str, int]]:
        """Connections open, idle and allowed, by kind."""
        replica = {} if self.replica is None else {"replica": self.replica.pool_state()}
        return {
            **replica,
            "admission": self.admission.pool_state(),
            "questions": self.questions.pool_state(),
            "ingest": self.ingest.pool_state(),
            "upkeep": self.upkeep.pool_state(),
        }

    def answered_s(self) -> float:
        """When the database answered any of them last, on Trio's clock."""
        pools = (self.admission, self.questions, self.ingest, self.upkeep)
        return max(pool.answered_s for pool in pools)

    def outages(self) -> int:
        """How often the database was away for any of them."""
        return sum(pool.outages for pool in (self.admission, self.questions, self.ingest, self.upkeep))


@asynccontextmanager
async def open_pools(
    address: Address, sizes: PoolSizes, *, replica: Address | None = None, max_lag_s: float = 0.0
) -> AsyncIterator[Pools]:
    """Hold the four open, and that of a replica. Connections are made when they are needed."""
    async with AsyncExitStack() as stack:

        async def opened(size: int, statement_s: float) -> Database:
            pool = Database(address, pool_size=size, statement_timeout_s=statement_s)
            return await stack.enter_async_context(pool.opened())

        pools = Pools(
            await opened(sizes.admission, ADMISSION_STATEMENT_S),
            await opened(sizes.questions, QUESTION_STATEMENT_S),
            await opened(sizes.ingest, INGEST_STATEMENT_S),
            await opened(sizes.upkeep, UPKEEP_STATEMENT_S),
        )
        if replica is None:
            yield pools
            return
        near = ReplicaFirst(
            replica,
            pools.questions,
            max_lag_s=max_lag_s,
            pool_size=sizes.questions,
            statement_timeout_s=QUESTION_STATEMENT_S,
        )
        await stack.enter_async_context(near.opened())
        yield attrs.evolve(pools, replica=near)
