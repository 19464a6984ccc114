"""The envelope of contract §1 as Quart responses, for every REST route."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from quart import Response
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from protocol.refusals import Refusal

#: How long browsers keep what a preflight said.
REMEMBERED_S: Final = 86_400


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


def allowing(response: Response, error: HTTPException) -> Response:
    """An answer that names the methods of its path, where the method was wrong."""
    if response.status_code == 405 and isinstance(error, MethodNotAllowed):
        methods = set(error.valid_methods or ()) - {"HEAD", "OPTIONS"}
        response.headers["allow"] = ", ".join(sorted(methods))
    return response


def opened(response: Response) -> Response:
    """An answer that a page of any origin may read: for doors that look at no cookie."""
    response.headers["access-control-allow-origin"] = "*"
    response.headers["access-control-expose-headers"] = "Retry-After"
    return response


def preflight_response(method: str, allowed_headers: str) -> Response:
    """What a browser is told before a page of another origin sends something."""
    return Response(
        b"",
        status=204,
        headers={
            "access-control-allow-origin": "*",
            "access-control-allow-methods": method,
            "access-control-allow-headers": allowed_headers,
            "access-control-max-age": str(REMEMBERED_S),
        },
    )
