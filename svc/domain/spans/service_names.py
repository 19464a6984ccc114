"""Names of services that are names of containers: what Docker and Kubernetes make up for each new instance.

`svc.domain.spans.call_site` and the readers of attributes leave the instance out, so that a restart is no new
service; the doctor and the first look say what to set. Pure.
"""

from __future__ import annotations

import re
from typing import Final

#: The id that Docker gives a container, which is its host name.
_CONTAINER: Final = re.compile(r"[0-9a-f]{12}")
#: What a Deployment adds to the name of a pod: the hash of its replica set, and five letters of its own.
_POD: Final = re.compile(r"-[0-9a-f]{8,10}-[a-z0-9]{5}$")


def names_an_instance(service: str) -> bool:
    """Whether a name changes with every restart."""
    return _CONTAINER.fullmatch(service) is not None or _POD.search(service) is not None


def without_instance(service: str) -> str:
    """The name without what stands for an instance; nothing is left of a container's id."""
    return "" if _CONTAINER.fullmatch(service) else _POD.sub("", service)
