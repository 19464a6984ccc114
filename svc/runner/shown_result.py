"""What a model sees of a tool's answer that is too long for it: whole rows, and how many there are of them.

The toolbox calls it. An answer with one long list is cut between two of its rows, never inside one; any other
text is cut at its head. Pure.
"""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

#: Of the room of an answer, what everything beside its rows may take.
_BESIDE_SHARE: Final = 0.5


@attrs.frozen
class ShownResult:
    """The beginning of an answer. `rows` of `rows_in_all` under `field` are in it; a blank `field`: it is cut
    as a text.
    """

    text: str
    field: str = ""
    rows: int = 0
    rows_in_all: int = 0


def shown_result(text: str, most_bytes: int, head_bytes: int) -> ShownResult:
    """As many rows of an answer as fit into so many bytes; the head of one without rows."""
    return _by_rows(text, most_bytes) or ShownResult(text.encode()[:head_bytes].decode(errors="ignore"))


def _by_rows(text: str, most_bytes: int) -> ShownResult | None:
    """The answer with the first rows of its longest list; None where not even one fits."""
    try:
        answer = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        lists = {name: raw for name, raw in map(_bytes_of, answer.items()) if raw.startswith(b"[")}
        if not lists:
            return None
        field = max(lists, key=lambda name: len(lists[name]))
        rows = [bytes(row) for row in msgspec.json.decode(lists[field], type=list[msgspec.Raw])]
    except (msgspec.DecodeError, RecursionError):
        return None
    beside = {name: msgspec.Raw(b"[]") if name == field else raw for name, raw in answer.items()}
    room = most_bytes - len(msgspec.json.encode(beside))
    if room < most_bytes * _BESIDE_SHARE:
        return None
    fitting = 0
    for row in rows:
        room -= len(row) + 1
        if room < 0:
            break
        fitting += 1
    if not fitting:
        return None
    answer[field] = msgspec.Raw(b"[" + b",".join(rows[:fitting]) + b"]")
    return ShownResult(msgspec.json.encode(answer).decode(), field, fitting, len(rows))


def _bytes_of(member: tuple[str, msgspec.Raw]) -> tuple[str, bytes]:
    name, raw = member
    return name, bytes(raw)
