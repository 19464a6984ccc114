"""One-shot replies: how an actor answers a question that came through its mailbox.

Whoever handles a question answers it with `put`, or says with `drop` that no answer will come, so that the
asker need not wait for its deadline.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Unanswered(Exception):
    """The question was dropped (its actor crashed or is closing), or no answer came in time."""


class Reply(Generic[T]):
    """The answering side and the asking side of one question. Only the first answer counts."""

    __slots__ = ("_answer", "_dropped", "_event")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._answer: list[T] = []
        self._dropped = False

    def put(self, answer: T) -> None:
        """Answer the question."""
        if not self._event.is_set():
            self._answer.append(answer)
            self._event.set()

    def drop(self) -> None:
        """Say that no answer will come."""
        if not self._event.is_set():
            self._dropped = True
            self._event.set()

    async def wait(self, timeout_s: float) -> T:
        """The answer. Raises `Unanswered` when the question was dropped or `timeout_s` have passed."""
        with trio.move_on_after(timeout_s):
            await self._event.wait()
        if not self._answer:
            raise Unanswered("dropped" if self._dropped else f"no answer within {timeout_s:g} s")
        return self._answer[0]
