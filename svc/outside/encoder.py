"""The encoder service: a model that scores texts, for detectors that rules cannot stand in for.

Owns `Encoder`, its one question and its bounds. The rounds of `frustration` and `groundedness` ask it. POST
`{url}/classify` with `{"head", "texts"}` or `{"head", "pairs"}`, answered by `{"scores"}`, one from 0 to 1
for each; at most 512 texts and 8 MB a call. Never logs a text, never retries: whoever asks knows when to.

Secrets: texts leave the house here, which is why nothing is asked until an operator names the service.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import attrs
import msgspec

from svc.outside.http import HttpClient, Unreached

CALL_TEXTS: Final = 512
CALL_BYTES: Final = 8 * 1000 * 1000
TIMEOUT_S: Final = 60.0
#: An answer of 512 scores takes some ten kilobytes.
ANSWER_BYTES: Final = 256 * 1024
#: Where a service that is busy does not say for how long.
BUSY_S: Final = 10.0
LONGEST_BUSY_S: Final = 300.0

Head = Literal["frustration", "groundedness"]
#: A text, or a claim and what it should stand on.
Asked = str | tuple[str, str]


class EncoderBusy(Exception):
    """The service asks to be left alone for so long."""

    def __init__(self, rest_s: float) -> None:
        super().__init__(f"busy for {rest_s:g} s")
        self.rest_s = rest_s


class _Scores(msgspec.Struct):
    scores: list[float]


@attrs.frozen
class Encoder:
    """Where the service is, and the key it asks for."""

    url: str
    key: str | None = attrs.field(default=None, repr=False)
    http: HttpClient = attrs.field(factory=lambda: HttpClient(timeout_s=TIMEOUT_S, answer_bytes=ANSWER_BYTES))

    async def classify(self, head: Head, asked: Sequence[Asked]) -> list[float]:
        """A score for each text or pair. Raises `EncoderBusy`, and `Unreached` for anything but an answer."""
        scores: list[float] = []
        for part in _calls(asked):
            scores += await self._call(head, part)
        return scores

    async def _call(self, head: Head, inputs: Sequence[Asked]) -> list[float]:
        kind = "texts" if not inputs or isinstance(inputs[0], str) else "pairs"
        headers = {"content-type": "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        body = msgspec.json.encode({"head": head, kind: inputs})
        answer = await self.http.ask("POST", f"{self.url.rstrip('/')}/classify", headers=headers, body=body)
        if answer.status == 429:
            raise EncoderBusy(_wait_s(answer.headers.get("retry-after")))
        if answer.status != 200:
            raise Unreached(f"answers {answer.status}")
        try:
            scores = msgspec.json.decode(answer.body, type=_Scores).scores
        except (msgspec.DecodeError, RecursionError):
            raise Unreached("its answer cannot be read") from None
        if len(scores) != len(inputs) or not all(0 <= score <= 1 for score in scores):
            raise Unreached("its answer has not one score from 0 to 1 for each text")
        return scores


def _wait_s(retry_after: str | None) -> float:
    try:
        return min(max(float(retry_after or BUSY_S), 1.0), LONGEST_BUSY_S)
    except ValueError:
        return BUSY_S


def _size(entry: Any) -> int:
    # Escapes make a text longer on the wire: this is what it is there.
    return len(msgspec.json.encode(entry)) + 1


def _calls(inputs: Sequence[Asked]) -> Iterator[Sequence[Asked]]:
    """What goes into one call each. A text too large for one goes alone, and is the service's to refuse."""
    part: list[Asked] = []
    used_bytes = 0
    for entry in inputs:
        size = _size(entry)
        if part and (len(part) >= CALL_TEXTS or used_bytes + size > CALL_BYTES - 1_000):
            yield part
            part, used_bytes = [], 0
        part.append(entry)
        used_bytes += size
    if part:
        yield part
