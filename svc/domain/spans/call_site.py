"""The call site of a span whose application does not tag one.

Owns: `infer_call_site`, which the mapper calls for every span without `svc.call_site.id`, and
`without_changing`. A span does not know its ancestors, so the nearest name is one it carries itself. Never
yields an empty id.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from svc.domain.spans.service_names import without_instance
from svc.domain.spans.values import identifier

#: What a deploy or a request changes: UUIDs, long hexadecimal words that hold a digit, runs of digits.
_CHANGING: Final = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|(?<![0-9a-z])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![0-9a-z])"
    r"|[0-9]+",
    re.IGNORECASE,
)
_LOOSE_ENDS: Final = re.compile(r"(?<=[\s/:_.#-])[\s/:_.#-]+|^[\s/:_.#-]+|[\s/:_.#-]+$")


@functools.lru_cache(8192)
def infer_call_site(
    service: str | None,
    component: str | None,
    name: str,
    request_model: str | None,
    response_model: str | None,
    kind: str,
) -> str:
    """`service/component/name` as the application spells them, equal over deploys and requests (contract §3).

    Of a service that is called as its container or pod, the instance is left out. `component` is the nearest
    agent, workflow or function. From both names ids and digits are stripped, and from the span's name its
    model, so that neither a new model nor a new instance makes a new call site. What is left empty is left
    out; a span of no name at all goes by its kind. Calls are remembered: pass short text.
    """
    span_name = name
    for model in (request_model, response_model):
        if model:
            span_name = re.sub(
                rf"(?<![\w.-]){re.escape(model)}(?![\w.-])", "", span_name, flags=re.IGNORECASE
            )
    segments = [
        _service(service),
        without_changing(component) if component else "",
        without_changing(span_name) or kind,
    ]
    return identifier("/".join(segment for segment in segments if segment))


def _service(service: str | None) -> str:
    # SDKs without a name make one up from the executable: `unknown_service:/usr/bin/node`.
    name = (service or "").partition(":")[0] if (service or "").startswith("unknown_service") else service
    return without_instance((name or "").strip()) or "unknown_service"


def without_changing(name: str) -> str:
    """A name without what a deploy or a request changes in it."""
    return _LOOSE_ENDS.sub("", _CHANGING.sub("", name)).strip()
