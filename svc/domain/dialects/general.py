"""What OpenTelemetry says of any span, whatever library made it, and our own tag.

Owns: the keys of the general semantic conventions (`session.*`, `user.*`, `enduser.*`, `error.*`,
`exception.*`, `code.*`) and `svc.call_site.id`. Called by the table of dialects. Knows nothing of models or
messages.
"""

from __future__ import annotations

from typing import Any, Final

from svc.domain.dialects.dialect import Dialect
from svc.domain.spans.values import text


def _identity(value: Any) -> str | None:
    # What Logfire writes in place of a value whose key holds "session", unless told otherwise: one for all.
    if type(value) is str and value.startswith("[Scrubbed due to "):
        return None
    return text(value)


DIALECT: Final = Dialect(
    name="general",
    title="OpenTelemetry, any span",
    keys={
        "session_id": ("session.id",),
        "user_id": ("user.id", "enduser.id"),
        "call_site": ("svc.call_site.id",),
        "named": ("code.function.name", "code.function"),
        "error_type": ("error.type", "exception.type"),
        "error_message": ("exception.message",),
    },
    readers={"session.id": _identity},
)
