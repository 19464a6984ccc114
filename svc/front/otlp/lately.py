"""Which exports were refused in the last minutes, by cause.

Owns `RefusedLately`. The tally of the doors notes each refusal, `/actuator/health` shows them, and so does
the host's doctor. Holds a fixed number of causes and minutes, whatever clients send; never a payload.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

#: How far back refusals are remembered.
MINUTES: Final = 10
#: Causes that are told apart; further ones are left out.
MOST_CAUSES: Final = 32

Cause = tuple[int, str]

#: Requests of exporters that reach the HTTP door but not the endpoint of traces.
WRONG_PATH: Final[Cause] = (404, "WRONG_PATH")
GRPC_OVER_HTTP: Final[Cause] = (404, "GRPC_OVER_HTTP")
#: What of a path is shown to people.
_PLAIN_PATH: Final = re.compile(r"/[\w./-]{0,80}", re.ASCII)


def is_stray_export(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a request at no path of ours looks like an export: it brings a key that sends, or protobuf."""
    # Clients of the REST API bring other keys, and lose their way too.
    carries_key = headers.get("authorization", "").lower().startswith("bearer svc_w_")
    return method == "POST" and (
        carries_key or headers.get("content-type", "").startswith("application/x-protobuf")
    )


def wrong_path(path: str) -> str:
    """A sentence about an export to this path."""
    shown = path if _PLAIN_PATH.fullmatch(path) else "that path"
    return f"nothing is served at {shown}"


@attrs.define(eq=False)
class RefusedLately:
    """Counts by cause and minute. `clock` is monotonic and in seconds."""

    clock: Callable[[], float]
    _causes: dict[Cause, tuple[str, dict[int, int]]] = attrs.field(factory=dict)

    def note(self, cause: Cause, message: str, count: int = 1) -> None:
        """So many refusals of a cause: the status and a word. The message is the one last answered."""
        minute = int(self.clock() // 60)
        if cause not in self._causes and len(self._causes) >= MOST_CAUSES:
            self._forget(minute)
            if len(self._causes) >= MOST_CAUSES:
                return
        counts = self._causes[cause][1] if cause in self._causes else {}
        for past in [past for past in counts if past <= minute - MINUTES]:
            del counts[past]
        counts[minute] = counts.get(minute, 0) + count
        self._causes[cause] = (message, counts)

    def told(self) -> list[dict[str, Any]]:
        """`{status, cause, message, count}` of each cause of the last minutes, the most frequent first."""
        self._forget(int(self.clock() // 60))
        causes = [
            {"status": status, "cause": cause, "message": message, "count": sum(counts.values())}
            for (status, cause), (message, counts) in self._causes.items()
        ]
        return sorted(causes, key=lambda one: (-int(one["count"]), str(one["cause"])))

    def _forget(self, minute: int) -> None:
        for cause, (_, counts) in list(self._causes.items()):
            for past in [past for past in counts if past <= minute - MINUTES]:
                del counts[past]
            if not counts:
                del self._causes[cause]
