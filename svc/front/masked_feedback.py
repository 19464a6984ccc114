"""Feedback with what its project masks replaced, before it is kept.

Called by the doors of feedback, of programs and of people. What spans bring is masked where they are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import attrs

from svc.domain.feedback.entries import Feedback
from svc.domain.intake.masking import Masker
from svc.store.postgres.database import Database
from svc.store.spans.masking import MaskingStore


async def masked_feedback(
    database: Database, project_id: int, entries: Sequence[Feedback], now: datetime
) -> list[Feedback]:
    """The entries with their texts masked by the rules that are in force now; counted as spans are.

    Names, categories and ids stay: others ask by them. Raises `Outage`.
    """
    if not any(entry.text for entry in entries):
        return list(entries)
    store = MaskingStore(database)
    masker = Masker()
    masker.adopt({project_id: await store.rules(project_id)})
    masked = [
        entry if entry.text is None else attrs.evolve(entry, text=masker.masked(project_id, entry.text))
        for entry in entries
    ]
    await store.add(masker.take(), now)
    return masked
