"""How a run fails: one exception with the kind that the service's table of outcomes knows."""

from __future__ import annotations

from protocol.running import DETAIL_CHARS, FailureKind, RunFailure
from svc.outside.models.provider import ModelRefused


class RunFailed(Exception):
    """The run comes to nothing. `detail` quotes no stranger."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.failure = RunFailure(kind, detail[:DETAIL_CHARS])

    @classmethod
    def of(cls, refused: ModelRefused, more: str = "") -> RunFailed:
        """The provider did not answer, and is not asked again."""
        kind: FailureKind
        match refused.kind:
            case "lost" | "unreached":
                kind = "provider_away"
            case kind:
                pass
        return cls(kind, f"{refused}{more}")
