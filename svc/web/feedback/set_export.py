"""A set as a file, in the format that its address names."""

from __future__ import annotations

from typing import Final

import attrs

from protocol.refusals import BAD_REQUEST, Refusal
from svc.domain.feedback.set_formats import FORMATS
from svc.front.api.traces.set_export import EXPORT_TIMEOUT_S, export_of
from svc.web.shell.page import PROJECT, Download, PageRoute, Visit


async def export(visit: Visit) -> Download | Refusal:
    """The file. Raises `Refused`."""
    format_ = next(
        (form for form in FORMATS.values() if form.name == visit.query.get("format", "lines")), None
    )
    if format_ is None:
        return BAD_REQUEST.saying(f"format is one of {', '.join(FORMATS)}")
    set_id = visit.call.path["setId"]
    exported = await export_of(attrs.evolve(visit.call, path={**visit.call.path, "set": set_id}), format_)
    return Download(exported.file(), f"set-{exported.set.id}.{format_.suffix}", EXPORT_TIMEOUT_S)


PAGES: Final = (PageRoute("GET", PROJECT + "/sets/{setId}/export", "ORG_VIEW", export),)
