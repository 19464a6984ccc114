"""Sessions that need not ask what PostgreSQL's own types are when another one of the process has asked.

asyncpg knows few arrays by itself and asks the catalog about all others, on each connection anew and with a
recursive question that a fresh session plans for 8 ms: a tenth of what the server did for our tests, whose
connections are young (measured November 2026, asyncpg 0.32). Asyncio-flavoured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import asyncpg
import attrs

if TYPE_CHECKING:
    #: What a unit of work gets.
    Connection = asyncpg.Connection[asyncpg.Record]
    _Base = Connection
else:
    Connection = Any
    _Base = asyncpg.Connection

#: Below it a type has its number by PostgreSQL's own table (`FirstGenbkiObjectId`), on every server the same.
_FIRST_OF_A_SERVER: Final = 10_000


@attrs.frozen
class _NotAsked:
    """In place of the statement that asked: with a name, so that asyncpg does not prepare its own anew."""

    name: str = "known"


_known: Final[dict[frozenset[int], Any]] = {}


class Session(_Base):
    """A connection that keeps for all what it was told about types that every server has."""

    async def _introspect_types(
        self,
        typeoids: set[int],
        timeout: float | None,  # noqa: ASYNC109 - asyncpg's own
    ) -> tuple[Any, Any]:
        asked = frozenset(typeoids)
        if asked in _known:
            return _known[asked], _NotAsked()
        types, statement = await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]
        if max(asked) < _FIRST_OF_A_SERVER:
            _known[asked] = types
        return types, statement
