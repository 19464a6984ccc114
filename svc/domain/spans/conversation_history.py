"""The conversation that agents send again whole with each turn, and what may be left out of it.

Owns: under which key a history comes, which of its messages were surely not said by the system, and what
stands in for one that nobody fetched. The packer marks messages, frames leave them out, detectors tell who
only stood in. Pure.
"""

from __future__ import annotations

import functools
import secrets
from typing import Final

#: Where those who speak GenAI have it, as one JSON text.
HISTORY_KEY: Final = "gen_ai.input.messages"
#: How a message begins that says something, and who said it: anybody but the system. JSON with spaces and
#: without.
_OF_OTHERS: Final = tuple(
    f'{{"role":{space}"{role}",{space}"{key}":{space}{said}'.encode()
    for space in ("", " ")
    for role in ("user", "assistant", "tool")
    for key, said in (("parts", "[{"), ("content", '"'), ("content", "[{"))
)
#: How one may end that says nothing, whatever stood before: then its span may tell the messages elsewhere.
_HOLLOW: Final = b"[]}"

#: Who says what stands in: nobody else has that role.
STAND_IN_ROLE: Final = secrets.token_hex(8)
_BEGINS: Final = f'{{"role":"{STAND_IN_ROLE}","parts":"'
_ENDS: Final = '"}'
_HEAD: Final = _BEGINS.encode()
_TAIL: Final = _ENDS.encode()
_SHORTEST: Final = f'{{"role":"{STAND_IN_ROLE}"}}'
#: What stands in is remembered up to this length.
_SHORT_BYTES: Final = 4096


def said_by_others(message: bytes) -> bool:
    """Whether this JSON is a message that a user, a model or a tool said. One that no exporter writes so is
    not known to be.
    """
    return message.startswith(_OF_OTHERS) and not message.endswith(_HOLLOW)


def stand_in(length: int) -> bytes:
    """A message of nobody, as long as the one in whose place it is, so that all lengths around it hold.

    At least 64 bytes long.
    """
    return _short(length) if length <= _SHORT_BYTES else _filler(length)


def _filler(length: int) -> bytes:
    return _HEAD + b"-" * (length - len(_HEAD) - len(_TAIL)) + _TAIL


def shortened(history: str, spared: int) -> str:
    """A history in which so many stand in, each as short as may be: whoever reads it need not read what fills
    them.
    """
    pieces: list[str] = []
    position = 0
    while len(pieces) < spared and (begin := history.find(_BEGINS, position)) >= 0:
        pieces.append(history[position:begin])
        position = history.find(_ENDS, begin + len(_BEGINS)) + len(_ENDS)
    pieces.append(history[position:])
    return _SHORTEST.join(pieces)


_short: Final = functools.lru_cache(256)(_filler)
