"""What pages say where payloads have aged out: that they have, and how long they are kept.

Called by the pages that show what spans said. Asks for the project's term only where something is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from svc.domain.retention.terms import Terms, payload_days
from svc.store.retention.sweep import read_override
from svc.web.shell import words
from svc.web.shell.page import Visit


async def aged_out(visit: Visit, available: Iterable[bool]) -> str:
    """Why a text is gone, without a full stop; blank where all are `available`."""
    if all(available):
        return ""
    override = await visit.means.database.run(
        lambda connection: read_override(connection, visit.project.id), readonly=True
    )
    return aged_out_text(override.over(visit.means.terms))


def aged_out_text(terms: Terms) -> str:
    """The sentence for these terms."""
    days = payload_days(terms)
    # Without a term they go with the disk budget alone.
    return f"aged out: payloads are kept for {words.counted(days, 'day')}" if days else "aged out"
