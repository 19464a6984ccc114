"""A conversation with a model, whoever serves it: what is said, called and answered, and what it used.

Shapes only. The loop of a run speaks in them; each dialect turns them into a provider's bodies and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

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
    """One turn of one side.

    `verbatim` is the provider's own message, which goes back to it as it came: what no block holds (a
    signature of its thoughts, its reasoning) it may want to see again.
    """

    role: Literal["user", "assistant"]
    blocks: Sequence[Block]
    verbatim: Any = attrs.field(default=None, repr=False)


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
    """What came back. `used` None: nobody said; `cut`: it ended at the bound of its length.

    `verbatim` is the message as it came, but for what its own provider would refuse to read again.
    """

    blocks: Sequence[SaidText | ToolUse]
    used: Spent | None
    cut: bool = False
    verbatim: Any = attrs.field(default=None, repr=False)


#: What stands where a model said nothing: providers refuse a message without content.
NOTHING: Final = "(nothing)"


def counted(number: Any) -> int:
    """A number of tokens; what is none, or is left out, counts as nothing."""
    if isinstance(number, float):
        return int(number) if number.is_integer() else 0
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


class UnreadableAnswer(Exception):
    """The provider's answer is none; the text quotes nothing of it."""
