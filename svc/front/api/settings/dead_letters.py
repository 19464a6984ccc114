"""`{p}/dead-letters`: what the database refused for good, looked at, replayed and discarded.

The pages of dead letters call these handlers too. Storing anew is the process's (`svc.front.ports.Replays`);
what becomes of letters, and the audit of it, is the store's.

Secrets: what a letter holds goes out masked; the letter stays as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from protocol.refusals import (
    LETTER_TOO_LARGE,
    NO_BROKER,
    NO_LETTER_CHOSEN,
    NO_SUCH_LETTER,
    Refusal,
    Refused,
)
from protocol.rest.dead_letters import (
    LetterListed,
    LetterPage,
    LetterReasonCount,
    LettersChosen,
    LettersDiscarded,
    LettersFetched,
    LetterSpan,
    LettersQuery,
    LettersReplayed,
    LetterWhole,
)
from protocol.rest.query import timestamp
from svc.domain.dead_letter_view import service_of, view_of
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.postgres.keyset import Keyset
from svc.store.spans.dead_letter_requests import AuditScope, Chosen, DeadLetterRequests, LetterHead
from svc.store.spans.dead_letters import LetterRow

#: Larger letters are for the command line: masking reads every text.
OPENED_BYTES: Final = 8 * 1024 * 1024
_MIB: Final = 1024 * 1024
_LAST_ID: Final = 2**63

_LETTERS: Final = Keyset("dead letters", (("id", "big integer"),))
#: Letters are opened beside the loop that serves everybody, one at a time.
_openers: Final = trio.CapacityLimiter(1)


async def get_letters(call: Call[None]) -> LetterPage:
    """Dead letters of the project, the newest first, and the most frequent reasons of all of them."""
    query: LettersQuery = call.query
    requests, position = DeadLetterRequests(call.means.questions), _LETTERS.place(query.cursor)
    letters = await requests.page(
        call.project.id, query.reason, position[0] if position else None, query.limit + 1
    )
    page = letters[: query.limit]
    reasons = await requests.reasons(call.project.id)
    has_more = len(letters) > query.limit
    return LetterPage(
        await trio.to_thread.run_sync(_listed, page, limiter=_openers),
        [
            LetterReasonCount(
                count.reason, count.letters, count.spans, count.bytes, timestamp(count.newest_at)
            )
            for count in reasons
        ],
        _LETTERS.cursor({"id": page[-1].id}) if has_more else None,
    )


def _listed(letters: Sequence[LetterHead]) -> list[LetterListed]:
    return [
        LetterListed(
            letter.id,
            letter.reason,
            letter.spans,
            letter.size,
            timestamp(letter.received_at),
            timestamp(letter.buried_at),
            None if letter.body is None else service_of(letter.body),
        )
        for letter in letters
    ]


async def get_letter(call: Call[None]) -> LetterWhole | Refusal:
    """One dead letter with the spans that it holds, their secrets masked."""
    return await opened(call)


async def opened(call: Call[None], most: int | None = None) -> LetterWhole | Refusal:
    """A letter with its spans, or the first so many of them."""
    letter_id = call.path["letterId"]
    if (
        not (letter_id.isascii() and letter_id.isdigit() and len(letter_id) < 20)
        or not 0 < int(letter_id) < _LAST_ID
    ):
        return NO_SUCH_LETTER
    letter = await DeadLetterRequests(call.means.questions).one(call.project.id, int(letter_id))
    if letter is None:
        return NO_SUCH_LETTER
    if len(letter.body) > OPENED_BYTES:
        return LETTER_TOO_LARGE.saying(LETTER_TOO_LARGE.message.format(size=f"{len(letter.body) / _MIB:.1f}"))
    return await trio.to_thread.run_sync(_letter_view, letter, most, limiter=_openers)


def _letter_view(letter: LetterRow, most: int | None) -> LetterWhole:
    contents = view_of(letter.body, most)
    return LetterWhole(
        letter.id,
        letter.reason,
        letter.spans,
        len(letter.body),
        timestamp(letter.received_at),
        timestamp(letter.buried_at),
        [LetterSpan(**span) for span in contents.spans],
        contents.fault,
    )


async def post_replay(call: Call[LettersChosen]) -> LettersReplayed:
    """Write letters again, the oldest first, at most a thousand or 20 seconds of them; refused ones stay."""
    means = call.means
    replay = await DeadLetterRequests(means.database).replay(
        _audit_scope(call), _chosen(call.body), means.replays.write
    )
    means.replays.unburied(replay.spans)
    return LettersReplayed(replay.letters, replay.stored, replay.refused, replay.left)


async def post_discard(call: Call[LettersChosen]) -> LettersDiscarded:
    """Delete letters for good."""
    discard = await DeadLetterRequests(call.means.database).discard(_audit_scope(call), _chosen(call.body))
    call.means.replays.unburied(discard.spans)
    return LettersDiscarded(discard.letters)


async def post_fetch(call: Call[None]) -> LettersFetched | Refusal:
    """In broker mode, fetch the letters of every project from their topic."""
    if not call.means.replays.broker:
        return NO_BROKER
    return LettersFetched(await call.means.replays.bring_home())


def _audit_scope(call: Call[LettersChosen]) -> AuditScope:
    return AuditScope(call.project.id, call.org.id, call.caller.label)


def _chosen(body: LettersChosen) -> Chosen:
    """Raises `Refused` unless just one of the three is said."""
    if (body.ids is not None) + (body.reason is not None) + body.all != 1:
        raise Refused(NO_LETTER_CHOSEN)
    return Chosen(body.ids, body.reason)


_PATH: Final = PROJECT + "/dead-letters"

ROUTES: Final = (
    Route("GET", _PATH, "ORG_VIEW", get_letters, LetterPage, query=LettersQuery),
    Route(
        "GET", _PATH + "/{letterId}", "ORG_VIEW", get_letter, LetterWhole,
        refusals=(NO_SUCH_LETTER, LETTER_TOO_LARGE),
    ),
    Route(
        "POST", _PATH + "/replay", "ORG_MANAGE", post_replay, LettersReplayed, body=LettersChosen,
        refusals=(NO_LETTER_CHOSEN,),
    ),
    Route(
        "POST", _PATH + "/discard", "ORG_MANAGE", post_discard, LettersDiscarded, body=LettersChosen,
        refusals=(NO_LETTER_CHOSEN,),
    ),
    Route("POST", _PATH + "/fetch", "ORG_ADMIN", post_fetch, LettersFetched, refusals=(NO_BROKER,)),
)  # fmt: skip
