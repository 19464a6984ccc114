"""Scores of Langfuse on the observations that they are about, else on the outermost one of their trace.

Called by `svc.importers.langfuse`. Two shapes: that of `/api/public/v3/scores`, with one typed value and a
subject, and that of the scores in an older trace, with a number beside a text. A score of a session comes
with an observation of it, and says which session it is about. Scores of runs of experiments are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from protocol.importing import Fetch
from svc.importers.evaluations import evaluation_event
from svc.importers.source import instant_of, json_of

PATH: Final = "/api/public/v3/scores"
#: What the API answers at most, and the traces that are named in one question.
PAGE_SCORES: Final = 100
_TRACES_ASKED: Final = 40
#: Pages of scores that are read for those traces or sessions.
_MOST_PAGES: Final = 50
#: The field of a row in which its scores wait.
SCORES: Final = "svc.scores"


async def fetched_scores(
    fetch: Fetch, trace_ids: Sequence[str], session_ids: Sequence[str]
) -> list[dict[str, Any]]:
    """The scores of these traces and sessions. Raises `NotThere` where the server has no such API."""
    scores = await _fetched(fetch, "traceId", trace_ids)
    # The server takes one of the two in a question, and parts ids at commas.
    return scores + await _fetched(fetch, "sessionId", [id_ for id_ in session_ids if "," not in id_])


async def _fetched(fetch: Fetch, name: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    scores: list[dict[str, Any]] = []
    for first in range(0, len(ids), _TRACES_ASKED):
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            query = [
                (name, ",".join(ids[first : first + _TRACES_ASKED])),
                ("fields", "details,subject,annotation"),
                ("limit", str(PAGE_SCORES)),
            ]
            if cursor is not None:
                query.append(("cursor", cursor))
            answer = json_of(await fetch("GET", PATH, tuple(query)), "Langfuse")
            scores += [score for score in answer.get("data") or () if isinstance(score, dict)]
            cursor = (answer.get("meta") or {}).get("cursor")
            if not isinstance(cursor, str) or not cursor:
                break
    return scores


def place_scores(rows: Sequence[dict[str, Any]], scores: Iterable[Mapping[str, Any]]) -> None:
    """Put each score on the row that it is about, as far as that is among these."""
    by_id = {(row.get("traceId"), row.get("id")): row for row in rows}
    by_session = {row["sessionId"]: row for row in reversed(rows) if row.get("sessionId")}
    roots = {row.get("traceId"): row for row in reversed(rows) if not row.get("parentObservationId")}
    for score in scores:
        subject: Mapping[str, Any] = score["subject"] if isinstance(score.get("subject"), dict) else {}
        if subject and subject.get("kind") not in ("trace", "observation", "session"):
            continue
        if subject.get("kind") == "session":
            if subject.get("id") in by_session:
                by_session[subject["id"]].setdefault(SCORES, []).append(score)
            continue
        is_trace = subject.get("kind") == "trace"
        trace_id = (subject.get("id") if is_trace else subject.get("traceId")) or score.get("traceId")
        observation_id = None if is_trace else subject.get("id") or score.get("observationId")
        row = by_id.get((trace_id, observation_id)) if observation_id else roots.get(trace_id)
        if row is not None:
            row.setdefault(SCORES, []).append(score)


def event_of(score: Mapping[str, Any]) -> dict[str, Any] | None:
    """A score as an event of its span."""
    value, text = score.get("value"), score.get("comment")
    subject: Any = score.get("subject")
    is_session = isinstance(subject, dict) and subject.get("kind") == "session"
    label = score.get("stringValue")
    match str(score.get("dataType") or "").upper():
        case "CATEGORICAL":
            # Beside its category it may have the number that the category stands for.
            label, value = (value, None) if isinstance(value, str) else (label, None)
        case "TEXT" | "CORRECTION":
            text, value, label = (value if isinstance(value, str) else label) or text, None, None
        case "BOOLEAN":
            label = None
    return evaluation_event(
        score.get("name"),
        value,
        label=label,
        text=text,
        author=score.get("authorUserId"),
        at=instant_of(score.get("timestamp")),
        session_id=subject.get("id") if is_session else None,
    )
