"""Settings: dead letters. What the database refused for good: why, from whom, replayed or discarded.

Looked at and dealt with through the handlers of the REST API.

Secrets: what a letter holds is shown masked, as spans are, and masked in the file that is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from protocol.refusals import Refusal
from protocol.rest.dead_letters import LettersChosen, LettersQuery
from svc.front.api.settings import dead_letters as api
from svc.web.shell import words
from svc.web.shell.forms import NoFields, asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Sent, Visit
from svc.web.shell.render import query

#: Spans of a letter that its page shows, and characters of each.
SPANS_SHOWN: Final = 20
SPAN_CHARS: Final = 20_000


class ChosenForm(msgspec.Struct):
    """Which letters: one, those of a reason, or `every` one."""

    id: int | None = None
    reason: str | None = None
    every: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """As the REST API takes it."""
        parameters = {"ids": None if self.id is None else [self.id], "reason": self.reason}
        return {
            "all": bool(self.every),
            **{name: value for name, value in parameters.items() if value is not None},
        }


def _address(visit: Visit) -> str:
    return visit.base + "/settings/dead-letters"


async def page(visit: Visit) -> Html | Refusal:
    """The letters, by reason and one by one."""
    reason = visit.query.get("reason") or None
    chosen = LettersQuery(reason=reason, cursor=visit.query.get("cursor"))
    letter_page = await asked(visit, api.get_letters, query=chosen)
    if isinstance(letter_page, Refusal):
        return letter_page
    context = {
        "tab": "dead-letters",
        "reasons": letter_page.reasons,
        "letters": letter_page.letters,
        "all": sum(group.letters for group in letter_page.reasons),
        "reason": reason,
        "more": query(_address(visit), reason=reason, cursor=letter_page.next_cursor)
        if letter_page.next_cursor
        else None,
        "said": _outcome_text(visit.query),
        "manages": visit.manages,
        "here": _address(visit),
        "broker": visit.means.replays.broker,
    }
    return Html("settings/dead_letters", context)


def _outcome_text(parameters: Mapping[str, str]) -> str | None:
    """What the last press did, as the address says it."""
    numbers = [
        int(part) for part in parameters.get("did", "").split("-") if part.isdecimal() and len(part) < 10
    ]
    match parameters.get("verb"), numbers:
        case "replay", [letters, stored, refused, left]:
            sentences = [
                f"{words.counted(letters, 'dead letter')} replayed, {words.counted(stored, 'span')} stored."
            ]
            if refused:
                sentences.append(
                    f"{words.counted(refused, 'dead letter was', 'dead letters were')} refused again."
                )
            if left:
                sentences.append(
                    f"{words.counted(left, 'dead letter is', 'dead letters are')} left: press again."
                )
            return " ".join(sentences)
        case "discard", [letters]:
            return f"Discarded {words.counted(letters, 'dead letter')}."
        case "fetch", [letters]:
            return f"Fetched {words.counted(letters, 'dead letter')} from the broker."
    return None


async def one(visit: Visit) -> Html | Sent | Refusal:
    """One letter: what it holds. `?form=json`: as a file."""
    as_file = visit.query.get("form") == "json"
    call = attrs.evolve(visit.call, path={**visit.call.path, "letterId": visit.call.path["id"]})
    letter = await api.opened(call, None if as_file else SPANS_SHOWN)
    if isinstance(letter, Refusal):
        return letter
    if as_file:
        return Sent(msgspec.json.encode(letter), file_name=f"dead-letter-{letter.id}.json", secret=True)
    texts = [msgspec.json.format(msgspec.json.encode(span), indent=2).decode() for span in letter.holds]
    context = {
        "tab": "dead-letters",
        "letter": letter,
        "texts": [text[:SPAN_CHARS] for text in texts],
        "cut": any(len(text) > SPAN_CHARS for text in texts),
        "manages": visit.manages,
        "here": _address(visit),
    }
    return Html("settings/dead_letter", context)


async def replay(visit: Visit) -> Go | Refusal:
    """Write letters again."""
    outcome = await asked(visit, api.post_replay, LettersChosen, visit.form.fields)
    if isinstance(outcome, Refusal):
        return outcome
    did = f"{outcome.letters}-{outcome.stored}-{outcome.refused}-{outcome.left}"
    return Go(query(_address(visit), verb="replay", did=did))


async def discard(visit: Visit) -> Go | Refusal:
    """Delete letters for good."""
    outcome = await asked(visit, api.post_discard, LettersChosen, visit.form.fields)
    if isinstance(outcome, Refusal):
        return outcome
    return Go(query(_address(visit), verb="discard", did=str(outcome.letters)))


async def fetch(visit: Visit) -> Go | Refusal:
    """In broker mode, fetch the letters that lie in its topic."""
    outcome = await asked(visit, api.post_fetch)
    if isinstance(outcome, Refusal):
        return outcome
    return Go(query(_address(visit), verb="fetch", did=str(outcome.letters)))


_LETTERS: Final = PROJECT + "/settings/dead-letters"

PAGES: Final = (
    PageRoute("GET", _LETTERS, "ORG_VIEW", page),
    PageRoute("GET", _LETTERS + "/{id}", "ORG_VIEW", one),
    PageRoute("POST", _LETTERS + "/replay", "ORG_MANAGE", replay, form=ChosenForm),
    PageRoute("POST", _LETTERS + "/discard", "ORG_MANAGE", discard, form=ChosenForm),
    PageRoute("POST", _LETTERS + "/fetch", "ORG_ADMIN", fetch, form=NoFields),
)
