"""How a run fails: one exception with the kind that the service's table of outcomes knows."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.running import DETAIL_CHARS, FailureKind, RunFailure
from svc.domain.agents.answers import tidied_text
from svc.outside.models.provider import ModelRefused


class RunFailed(Exception):
    """The run comes to nothing. `detail` quotes of a stranger only what was scrubbed."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.failure = RunFailure(kind, detail[:DETAIL_CHARS])

    @classmethod
    def of(cls, refused: ModelRefused, literal: Iterable[str] = (), suffix: str = "") -> RunFailed:
        """The provider did not answer, and is not asked again. `literal` must not stand in what it says."""
        kind: FailureKind
        match refused.kind:
            case "lost" | "unreached":
                kind = "provider_away"
            case kind:
                pass
        if refused.quote:
            # Scrubbed before it is cut: half a secret is none that anything knows.
            return cls(kind, " ".join(tidied_text(refused.quote, literal).split()))
        return cls(kind, f"{refused}{suffix}")
