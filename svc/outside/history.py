"""Another product's API, read page by page by `trace-svc import`: patient with it, and bounded.

Knows no product: the importers say what to ask for. A product that is busy, rate limited or away is waited
for, as long as it says itself where it does, and each wait is told; one that fails at a question is asked a
few times; a no that waiting does not mend is a sentence for the operator.

Secrets: `headers` hold credentials of the other product. They are in no repr and no message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlencode

import attrs
import trio

from protocol.importing import FailedQuestion, NotThere, PageTooLarge
from protocol.operator import OperatorError
from protocol.storage import Outage
from svc.outside.http import AnswerTooLarge, HttpAnswer, HttpClient, Unreached

#: One answer; a page that is larger is asked for in halves.
ANSWER_BYTES: Final = 64 * 1024 * 1024
#: One question, and all tries of it together.
QUESTION_TIMEOUT_S: Final = 120.0
PATIENCE_S: Final = 600.0
#: What is waited between tries where the other side says nothing, and at most where it does.
_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
_LONGEST_PAUSE_S: Final = 300.0
_BUSY: Final = frozenset({408, 425, 429, 502, 503, 504})
#: The answer of a server that fails at a question, and how often it may give it before it is believed.
_FAILS: Final = 500
_FAILING: Final = f"answers {_FAILS}"
FAILING_TRIES: Final = 4


@attrs.frozen
class HistoryClient:
    """Asks below one address. `credentials` names the variables that hold them, for who is refused."""

    base: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    credentials: str
    http: HttpClient = attrs.field(
        factory=lambda: HttpClient(timeout_s=QUESTION_TIMEOUT_S, answer_bytes=ANSWER_BYTES)
    )
    rest: Callable[[float], Awaitable[object]] = trio.sleep
    patience_s: float = PATIENCE_S
    #: Hears of each wait, and what it is for.
    tell: Callable[[str], object] = lambda _line: None

    async def __call__(
        self, method: str, path: str, query: tuple[tuple[str, str], ...] = (), body: bytes = b""
    ) -> bytes:
        """The body of the answer. The `Fetch` of `protocol.importing`, with all that it raises."""
        url = self.base.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        sent = {"accept": "application/json", **self.headers}
        if body:
            sent["content-type"] = "application/json"
        waited_s, tries = 0.0, 0
        while True:
            fault, pause_s = await self._asked(method, url, sent, body)
            if isinstance(fault, bytes):
                return fault
            if fault == _FAILING and tries + 1 >= FAILING_TRIES:
                raise FailedQuestion(f"{self.base.rstrip('/')}{path} {fault} each of {FAILING_TRIES} times")
            pause_s = _PAUSES_S[min(tries, len(_PAUSES_S) - 1)] if pause_s is None else pause_s
            if waited_s + pause_s > self.patience_s:
                raise Outage(
                    f"{self.base} {fault}, and waiting {waited_s:.0f} s did not help; run it again to go on"
                )
            self.tell(f"{self.base.rstrip('/')}{path} {fault}; asking again in {pause_s:.0f} s")
            await self.rest(pause_s)
            waited_s, tries = waited_s + pause_s, tries + 1

    async def _asked(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[bytes | str, float | None]:
        """The answer's body; or what is wrong for now, and how long to wait where the other side says so."""
        try:
            answer = await self.http.ask(method, url, headers=headers, body=body)
        except AnswerTooLarge:
            raise PageTooLarge from None
        except Unreached as error:
            return str(error), None
        if answer.status == 200:
            return answer.body, None
        if answer.status in _BUSY or answer.status == _FAILS:
            return f"answers {answer.status}", _retry_after_s(answer)
        raise self._no(answer)

    def _no(self, answer: HttpAnswer) -> Exception:
        match answer.status:
            case 401 | 403:
                return OperatorError(
                    f"{self.base} refuses the credentials ({answer.status}); it takes {self.credentials}"
                )
            case 404:
                return NotThere()
            case status if 300 <= status < 400:
                return OperatorError(f"{self.base} answers {status}: give the address that it leads to")
            case status:
                return OperatorError(f"{self.base} answers {status} to what was asked of it")


def _retry_after_s(answer: HttpAnswer) -> float | None:
    """What `Retry-After` says in seconds; a date is no reason to trust two clocks."""
    text = answer.headers.get("retry-after", "").strip()
    return min(float(text), _LONGEST_PAUSE_S) if text.isdecimal() and len(text) < 9 else None
