"""A conversation with a model, whoever serves it: what is said, called and answered, and what it used.

Shapes only. The loop of a run speaks in them; each dialect turns them into a provider's bodies and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from protocol.agents import Spent


@attrs.frozen
class ToolOffer:
    """A tool that the model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]


@attrs.frozen
class SaidText:
    """A text, by either side."""

    text: str


@attrs.frozen
class ToolUse:
    """The model calls a tool. `arguments` None: they are no JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None


@attrs.frozen
class ToolAnswer:
    """What a tool answered to the call of that id."""

    id: str
    text: str
    is_error: bool = False


Block = SaidText | ToolUse | ToolAnswer


@attrs.frozen
class Utterance:
    """One turn of one side."""

    role: Literal["user", "assistant"]
    blocks: Sequence[Block]


@attrs.frozen
class ModelQuestion:
    """One call of a model; `forced` names the tool that it must call."""

    system: str
    utterances: Sequence[Utterance]
    tools: Sequence[ToolOffer]
    output_tokens: int
    forced: str | None = None


@attrs.frozen
class ModelAnswer:
    """What came back. `cut`: it ended at the bound of its length."""

    blocks: Sequence[SaidText | ToolUse]
    used: Spent
    cut: bool = False


class UnreadableAnswer(Exception):
    """The provider's answer is none; the text quotes nothing of it."""
