"""Forms over the handlers of the REST API: the same bodies, the same refusals, the same audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import attrs
import msgspec

from protocol.refusals import BAD_REQUEST, Refused
from protocol.validation import validation_text
from svc.web.shell.page import Visit


class NoFields(msgspec.Struct):
    """A form that is a button."""


async def asked(
    visit: Visit,
    handler: Any,
    body: type[msgspec.Struct] | None = None,
    fields: Mapping[str, Any] | None = None,
    *,
    path: Mapping[str, str] | None = None,
    query: msgspec.Struct | None = None,
) -> Any:
    """What a handler answers: its data, or a `Refusal`. Fields that its body cannot take are refused too."""
    call = attrs.evolve(visit.call, path={**visit.call.path, **(path or {})}, query=query)
    try:
        if body is not None:
            call = attrs.evolve(call, body=msgspec.convert(dict(fields or {}), body, strict=False))
        return await handler(call)
    except msgspec.ValidationError as error:
        return BAD_REQUEST.saying(f"the form cannot be read: {validation_text(error, body)}"[:300])
    except Refused as refused:
        return refused.refusal


def sent_from(headers: Mapping[str, str]) -> SplitResult:
    """The address of the page that holds the form, as the browser says it; blank where it says none."""
    try:
        return urlsplit(headers.get("referer", ""))
    except ValueError:
        # Brackets that hold no address of a host: no browser sends that.
        return urlsplit("")
