"""Settings: the taxonomy of a project. What it is, and replacing it after a look at what that changes.

A file is read by the browser into the text of the form, or pasted there; it is kept by the handler of the
REST API, and not when somebody else has changed the taxonomy since the look.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Any, Final

import attrs
import msgspec
import trio

from protocol.refusals import BAD_REQUEST, TAXONOMY_CHANGED, Refusal
from protocol.taxonomy import BadTaxonomy, Taxonomy
from svc.domain.taxonomy_file import KINDS, changes_of, taxonomy_of
from svc.front.api.settings.project_settings import BAD_TAXONOMY, keep_taxonomy
from svc.store.detection.taxonomy import TaxonomyStore
from svc.web.shell import words
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Sent, Visit
from svc.web.shell.render import packers

#: What a form may bring; the command line takes larger files.
MAX_CHARS: Final = 256 * 1024
CHANGES_SHOWN: Final = 200
MODES_SHOWN: Final = 100


class TaxonomyForm(msgspec.Struct):
    """A taxonomy as text. `seen`: the taxonomy that the look compared with; blank asks for a look."""

    text: str = ""
    seen: str = ""


async def page(visit: Visit) -> Html | Sent:
    """What the taxonomy is. `?form=json`: as a file."""
    if visit.query.get("form") == "json":
        taxonomy = await TaxonomyStore(visit.means.questions).whole(visit.project.id)
        body = msgspec.json.format(msgspec.json.encode(taxonomy), indent=2)
        return Sent(body, file_name=f"taxonomy-{visit.project.slug}.json")
    return await _page(visit)


async def _page(visit: Visit, refusal: Refusal | None = None, **look: Any) -> Html:
    present = await TaxonomyStore(visit.means.questions).whole(visit.project.id)
    counts = {kind: len(getattr(present, name)) for name, kind in KINDS.items()}
    context = {
        "tab": "taxonomy",
        "present": present,
        "counts": [words.counted(n, kind) for kind, n in counts.items()],
        "any": any(counts.values()),
        "modes": sorted(
            present.failure_modes, key=lambda mode: ("high", "medium", "low").index(mode.severity)
        ),
        "modes_shown": MODES_SHOWN,
        "refusal": refusal,
        "manages": visit.manages,
        "most": words.size(MAX_CHARS),
        "text": "",
        "changes": None,
        "seen": "",
        **look,
    }
    status = refusal.status if refusal else 200
    return Html("settings/taxonomy", context, status=status)


async def replace(visit: Visit) -> Html | Go:
    """First what it would change; with what was seen, the change itself."""
    form: TaxonomyForm = visit.form
    if len(form.text) > MAX_CHARS:
        too_long = f"a taxonomy of more than {words.size(MAX_CHARS)} is imported by trace-svc taxonomy import"
        return await _page(visit, BAD_REQUEST.saying(too_long))
    text = form.text
    try:
        taxonomy = await trio.to_thread.run_sync(
            lambda: taxonomy_of(text, aliases=False), limiter=packers, abandon_on_cancel=False
        )
    except BadTaxonomy as bad:
        return await _page(visit, BAD_TAXONOMY.saying(str(bad)[:500]), text=form.text)
    present = await TaxonomyStore(visit.means.database).whole(visit.project.id)
    if not form.seen:
        return await _preview(visit, taxonomy, present, form.text)
    if form.seen != _mark(present):
        return await _preview(visit, taxonomy, present, form.text, TAXONOMY_CHANGED)

    async def keep(call: Any) -> Any:
        return await keep_taxonomy(attrs.evolve(call, body=taxonomy), present)

    answer = await asked(visit, keep)
    if isinstance(answer, Refusal):
        present = await TaxonomyStore(visit.means.database).whole(visit.project.id)
        return await _preview(visit, taxonomy, present, form.text, answer)
    return Go(visit.base + "/settings/taxonomy")


async def _preview(
    visit: Visit, taxonomy: Taxonomy, present: Taxonomy, text: str, refusal: Refusal | None = None
) -> Html:
    changes = list(changes_of(present, taxonomy))
    did = Counter(change.did for change in changes)
    summary = ", ".join(
        f"{words.count(did[name])} {name}" for name in ("added", "changed", "removed") if did[name]
    )
    return await _page(
        visit, refusal, text=text, changes=changes[:CHANGES_SHOWN], all_changes=len(changes), told=summary,
        seen=_mark(present),
    )  # fmt: skip


def _mark(taxonomy: Taxonomy) -> str:
    """Tells one taxonomy from another."""
    return blake2b(msgspec.json.encode(taxonomy), digest_size=12).hexdigest()


_TAXONOMY: Final = PROJECT + "/settings/taxonomy"

PAGES: Final = (
    PageRoute("GET", _TAXONOMY, "ORG_VIEW", page),
    PageRoute("POST", _TAXONOMY, "ORG_MANAGE", replace, form=TaxonomyForm),
)
