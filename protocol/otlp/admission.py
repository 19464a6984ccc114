"""A body on its way into the spool: decoded, counted, screened, and written as it may be stored.

Owns: `admit`, and which of its ways a body takes. What is small is read in one go, in the event loop; what is
large is read piece by piece, in a worker thread of the intake. Both ways give the same for the same body, and
both hold its limits. Raises `Unreadable`, `OverLimit`, and `NotHere` for what must not be read in the loop.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import attrs
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from protocol.inflate import Unreadable
from protocol.otlp.json import read_json
from protocol.otlp.json_pieces import admit_json
from protocol.otlp.limits import Limits
from protocol.otlp.piecewise import admit_protobuf, smallest_over
from protocol.otlp.screen import SNAKE_CASE, Screening, screen
from protocol.otlp.signals import other_signal, signal_text

Form = Literal["protobuf", "json"]

#: The largest body that is read in the loop. Measured 2026-11 on one of two shared cores, the worst of them:
#: protobuf 30 ms (spans that are refused), JSON 85 ms (empty spans). The way through a thread costs 0.07 ms.
INLINE_BYTES: Final[dict[Form, int]] = {"protobuf": 512 * 1024, "json": 64 * 1024}
#: Spans that are screened in the loop: empty ones, of which a small body holds many, cost 3 µs each.
_INLINE_SPANS: Final = 8192
#: What a body says that was written from the names of the .proto files.
_SNAKE_CASE: Final = (b'"resource_spans"', b'"scope_spans"')


class NotHere(Exception):
    """The body must be read in a worker thread."""


def is_small(size_bytes: int, form: Form, limits: Limits) -> bool:
    """Whether a body of this size may be read in the loop: it cannot pass a limit that is not counted there.

    Reading JSON counts the depth of values by the way.
    """
    uncounted_bytes = 2 * limits.values if form == "json" else smallest_over(limits)
    return size_bytes <= min(INLINE_BYTES[form], uncounted_bytes)


def admit(plain: bytes, form: Form, limits: Limits, *, inline: bool) -> tuple[bytes, Screening]:
    """The body as protobuf that may be stored, without the spans that cannot be, and what was refused."""
    try:
        body, screening = _admitted(plain, form, limits, inline=inline)
    except Unreadable:
        if form == "protobuf" and (signal := other_signal(plain)) is not None:
            raise Unreadable(signal_text(signal)) from None
        raise
    nothing_stays = form == "protobuf" and screening.rejected and not screening.accepted
    if nothing_stays and (signal := other_signal(plain)) is not None:
        raise Unreadable(signal_text(signal))
    nothing = form == "json" and not screening.accepted + screening.rejected
    if nothing and any(name in plain for name in _SNAKE_CASE):
        screening = attrs.evolve(screening, warning=SNAKE_CASE)
    return body, screening


def _admitted(plain: bytes, form: Form, limits: Limits, *, inline: bool) -> tuple[bytes, Screening]:
    if not inline:
        return admit_json(plain, limits) if form == "json" else admit_protobuf(plain, limits)
    request: Any
    if form == "json":
        request = read_json(plain, limits)
    else:
        try:
            request = ExportTraceServiceRequest.FromString(plain)
        except DecodeError:
            # To find out whether texts alone are broken takes a walk through all of it.
            raise NotHere from None
        if _is_many(request):
            raise NotHere
    screening = screen(request, limits)
    unchanged = form == "protobuf" and not screening.rejected
    return plain if unchanged else request.SerializeToString(), screening


def _is_many(request: Any) -> bool:
    """Whether there are more spans or groups than are screened in the loop."""
    many = len(request.resource_spans)
    for group in request.resource_spans if many <= _INLINE_SPANS else ():
        many += len(group.scope_spans)
        if many > _INLINE_SPANS:
            break
        for scope in group.scope_spans:
            many += len(scope.spans)
    return many > _INLINE_SPANS
