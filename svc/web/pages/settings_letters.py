"""Settings: dead letters. What the database refused for good: why, from whom, replayed or discarded.

Secrets: what a letter holds is shown masked, as spans are, and masked in the file that is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import msgspec
import trio

from protocol.inflate import Unreadable
from protocol.otlp.reading import read_protobuf, walk
from protocol.refusals import BAD_REQUEST, NOT_FOUND, PAYLOAD_HOLDS_TOO_MUCH, Refusal, Refused
from protocol.rest.query import jsonable
from protocol.text import clean_value
from svc.domain.detect.masking import masked_value
from svc.store.spans.letter_desk import Chosen, Desk, LetterDesk, LetterHead
from svc.web import words
from svc.web.one_trace import packers
from svc.web.page import PROJECT, Go, Html, PageRoute, Sent, Visit
from svc.web.pages.sign_in import NoFields
from svc.web.render import query

ROWS: Final = 50
#: Spans of a letter that its page shows, and characters of each.
SPANS_SHOWN: Final = 20
SPAN_CHARS: Final = 20_000
#: Larger letters are for the command line: masking reads every text.
OPENED_BYTES: Final = 8 * 1024 * 1024
_NO_LETTER: Final = NOT_FOUND.saying(
    "there is no such dead letter in this project; it may have been replayed"
)


class ChosenForm(msgspec.Struct):
    """Which letters: one, those of a reason, or `every` one."""

    id: int | None = None
    reason: str | None = None
    every: str = ""

    @property
    def chosen(self) -> Chosen:
        """As the store takes it. Raises `Refused` when nothing is chosen."""
        if self.id is None and self.reason is None and not self.every:
            raise Refused(BAD_REQUEST.saying("say which letters"))
        return Chosen(self.id, self.reason)


def _desk(visit: Visit) -> Desk:
    return Desk(visit.project.id, visit.org.id, visit.call.caller.label)


def _here(visit: Visit) -> str:
    return visit.base + "/settings/dead-letters"


async def page(visit: Visit) -> Html:
    """The letters, by reason and one by one."""
    desk = LetterDesk(visit.means.questions)
    reason = visit.query.get("reason") or None
    before = visit.query.get("before", "")
    letters = await desk.page(
        visit.project.id, reason, int(before) if before.isdigit() and len(before) < 19 else None, ROWS + 1
    )
    shown = letters[:ROWS]
    services = await trio.to_thread.run_sync(lambda: [_service(one) for one in shown], limiter=packers)
    reasons = await desk.reasons(visit.project.id)
    context = {
        "tab": "dead-letters",
        "reasons": reasons,
        "letters": list(zip(shown, services, strict=True)),
        "all": sum(one.letters for one in reasons),
        "reason": reason,
        "more": query(_here(visit), reason=reason, before=shown[-1].id) if len(letters) > ROWS else None,
        "said": _said(visit.query),
        "manages": visit.manages,
        "here": _here(visit),
        "broker": visit.instruments.process.broker,
    }
    return Html("pages/settings_letters", context)


def _said(asked: Mapping[str, str]) -> str | None:
    """What the last press did, as the address says it."""
    numbers = [int(part) for part in asked.get("did", "").split("-") if part.isdigit() and len(part) < 10]
    match asked.get("verb"), numbers:
        case "replay", [letters, stored, refused]:
            text = (
                f"{words.counted(letters, 'letter')} replayed, {words.counted(stored, 'span')} stored anew."
            )
            return text + (
                f" {words.counted(refused, 'letter was', 'letters were')} refused once more."
                if refused
                else ""
            )
        case "discard", [letters]:
            return f"{words.counted(letters, 'letter is', 'letters are')} gone."
        case "fetch", [letters]:
            return f"{words.counted(letters, 'letter')} came home from the broker."
    return None


def _service(letter: LetterHead) -> str:
    """Whose the first span of a letter is; "" when that cannot be told cheaply."""
    if letter.body is None:
        return ""
    try:
        first = next(iter(walk(read_protobuf(letter.body))), None)
    except Unreadable:
        return ""
    return "" if first is None else str(clean_value(first.resource.attributes.get("service.name", "")))[:100]


async def one(visit: Visit) -> Html | Sent | Refusal:
    """One letter: what it holds. `?form=json`: as a file."""
    letter_id = visit.call.path["id"]
    found = None
    if letter_id.isdigit() and len(letter_id) < 19:
        found = await LetterDesk(visit.means.questions).one(visit.project.id, int(letter_id))
    if found is None:
        return _NO_LETTER
    if len(found.body) > OPENED_BYTES:
        said = f"{words.size(len(found.body))} are not opened here; trace-svc dead-letters show prints them"
        return PAYLOAD_HOLDS_TOO_MUCH.saying(said)
    body, whole = found.body, visit.query.get("form") == "json"
    spans, fault = await trio.to_thread.run_sync(
        lambda: _held(body, None if whole else SPANS_SHOWN), limiter=packers
    )
    if whole:
        head = {"reason": found.reason, "received_at": found.received_at, "spans": spans}
        written = msgspec.json.encode(head, enc_hook=jsonable)
        return Sent(written, file_name=f"dead-letter-{found.id}.json", secret=True)
    texts = [msgspec.json.format(msgspec.json.encode(span), indent=2).decode() for span in spans]
    context = {
        "tab": "dead-letters",
        "letter": found,
        "size": len(found.body),
        "texts": [text[:SPAN_CHARS] for text in texts],
        "cut": any(len(text) > SPAN_CHARS for text in texts),
        "fault": fault,
        "manages": visit.manages,
        "here": _here(visit),
    }
    return Html("pages/settings_letter", context)


def _held(body: bytes, most: int | None) -> tuple[list[dict[str, Any]], str | None]:
    try:
        return [
            {
                "trace_id": span.trace_id.hex(),
                "span_id": span.span_id.hex(),
                "name": masked_value(clean_value(span.name)),
                "attributes": masked_value(clean_value(span.attributes)),
                "resource": masked_value(clean_value(span.resource.attributes)),
            }
            for span in islice(walk(read_protobuf(body)), most)
        ], None
    except Unreadable as error:
        return [], str(error)


async def replay(visit: Visit) -> Go:
    """Write letters again."""
    done = await LetterDesk(visit.means.database).replay(
        _desk(visit), visit.form.chosen, visit.instruments.process.write
    )
    visit.instruments.process.unburied(done.spans)
    return Go(query(_here(visit), verb="replay", did=f"{done.letters}-{done.stored}-{done.refused}"))


async def discard(visit: Visit) -> Go:
    """Delete letters for good."""
    done = await LetterDesk(visit.means.database).discard(_desk(visit), visit.form.chosen)
    visit.instruments.process.unburied(done.spans)
    return Go(query(_here(visit), verb="discard", did=str(done.letters)))


async def fetch(visit: Visit) -> Go:
    """In broker mode, fetch the letters that lie in its topic."""
    found = await visit.instruments.process.bring_home()
    return Go(query(_here(visit), verb="fetch", did=str(found)))


_LETTERS: Final = PROJECT + "/settings/dead-letters"

PAGES: Final = (
    PageRoute("GET", _LETTERS, "ORG_VIEW", page),
    PageRoute("GET", _LETTERS + "/{id}", "ORG_VIEW", one),
    PageRoute("POST", _LETTERS + "/replay", "ORG_MANAGE", replay, form=ChosenForm),
    PageRoute("POST", _LETTERS + "/discard", "ORG_MANAGE", discard, form=ChosenForm),
    PageRoute("POST", _LETTERS + "/fetch", "ORG_ADMIN", fetch, form=NoFields),
)
