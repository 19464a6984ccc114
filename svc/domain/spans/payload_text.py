"""Whether a span that was not opened holds a text somewhere in what it said. Pure.

Called by `svc.store.spans.payload_texts`, which looks through the payloads of many spans, and by
`svc.store.reads.one_trace.trace_payloads`, which looks through those of one trace. Never opens a span: an
envelope holds its texts as UTF-8, whatever stands between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

#: Texts of JSON within texts of JSON: messages in an attribute, and a tool's arguments in those.
_DEPTH: Final = 2
#: Characters as many clients write them in JSON, in lower case. A run of backslashes is read once: where it
#: was tried again from each of its own, 60,000 took 2.5 s.
_ESCAPED: Final = re.compile(r"(?<!\\)(?:\\++u[0-9a-f]{4})+")
#: What some clients escape though it is ASCII, as Go and .NET do for the sake of HTML.
_HTML: Final = frozenset("\"'&<>+`")
_CODES: Final = re.compile(r"u([0-9a-f]{4})")


def finder(text: str) -> Callable[[bytes], bool]:
    """What tells whether some bytes of an envelope hold a text, whatever the case of its letters.

    Messages come as JSON, in which a quotation mark, a line break or an é may be written with a backslash.
    """
    needle = text.encode("utf-8", "replace").decode().casefold()
    spellings = _spellings(needle)
    plain = [spelling.encode() for spelling in spellings]

    def holds_ascii(envelope: bytes) -> bool:
        folded = envelope.lower()
        return any(spelling in folded for spelling in plain)

    def holds(envelope: bytes) -> bool:
        # What is no text, such as lengths, becomes what no text has.
        folded = envelope.decode("utf-8", "surrogateescape").casefold()
        if any(spelling in folded for spelling in spellings):
            return True
        if "\\u" not in folded:
            return False
        written_out = _ESCAPED.sub(_characters, folded).casefold()
        return any(spelling in written_out for spelling in spellings)

    # What nobody escapes is looked for without decoding.
    return holds_ascii if needle.isascii() and _HTML.isdisjoint(needle) else holds


def _spellings(needle: str) -> list[str]:
    spellings = [needle]
    for _ in range(_DEPTH):
        spellings.append(json.dumps(spellings[-1], ensure_ascii=False)[1:-1])
    # PHP escapes a stroke, too.
    spellings += [spelling.replace("/", "\\/") for spelling in spellings]
    return list(dict.fromkeys(spellings))


def _characters(match: re.Match[str]) -> str:
    # Two codes may be one character.
    return bytes.fromhex("".join(_CODES.findall(match[0]))).decode("utf-16-be", "replace")
