"""The envelope of contract §1 as Quart responses, for every REST route."""

from __future__ import annotations

from typing import Any

import msgspec
from quart import Response

from protocol.refusals import Refusal


def json_response(value: Any, status: int = 200) -> Response:
    """A value as JSON, outside of the envelope."""
    return Response(msgspec.json.encode(value), status=status, content_type="application/json")


def success_response(data: Any, status: int = 200) -> Response:
    """The success envelope."""
    return json_response({"ok": True, "data": data}, status)


def refusal_response(refusal: Refusal) -> Response:
    """The failure envelope."""
    response = Response(refusal.body(), status=refusal.status, content_type="application/json")
    if refusal.retry_after_s is not None:
        response.headers["retry-after"] = str(refusal.retry_after_s)
    return response
