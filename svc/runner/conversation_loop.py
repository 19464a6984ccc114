"""One run: the model is asked, its calls are answered, its answer is checked, within the budget.

`Conversation.run` gives the answer or raises `RunFailed`. The worst case of each call is reserved before it
is made, and that of a last turn with it, in which only an answer may be submitted. The context is trimmed
once; then it is wrapped up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import attrs
import msgspec
import trio

from protocol.agents import BYTES_A_TOKEN, RunLimits, Spent
from protocol.running import RunRequest
from svc.domain.agents.answers import completed, faults, tidied, unsupported
from svc.outside.models.conversation import (
    Block,
    ModelAnswer,
    ModelQuestion,
    SaidText,
    ToolAnswer,
    ToolOffer,
    ToolUse,
    Utterance,
)
from svc.outside.models.provider import ModelProvider, ModelRefused
from svc.runner.failing import RunFailed
from svc.runner.meter import Meter
from svc.runner.toolbox import LONG_BYTES, SUBMIT, Toolbox

CALLS_A_TURN: Final = 8
#: What the results of one turn may weigh together, and the share of a small context that this is at most.
TURN_BYTES: Final = 48 * 1024
TURN_SHARE: Final = 4
#: What is left of an older result once the context is full.
TRIMMED_CHARS: Final = 400
#: A submitted answer is refused so often, and then no more.
REFUSALS: Final = 3
RETRY_S: Final = (1.0, 2.0, 4.0, 8.0)
#: Of what we wrote ourselves, in English and as schemas, a token has at least three.
OWN_BYTES_A_TOKEN: Final = 3


def turn_bytes(limits: RunLimits) -> int:
    """What the results of one turn may weigh together."""
    return min(TURN_BYTES, limits.context_tokens // TURN_SHARE * BYTES_A_TOKEN)


def shown_bytes(limits: RunLimits) -> int:
    """What one result may weigh to be shown whole."""
    return min(LONG_BYTES, turn_bytes(limits) // 2)


@attrs.define(eq=False)
class Conversation:
    """The conversation of one run. `tell` takes events, `literal` are texts that no answer may hold."""

    request: RunRequest
    provider: ModelProvider
    tools: Toolbox
    meter: Meter
    tell: Callable[..., None]
    literal: Sequence[str] = attrs.field(default=(), repr=False)
    _turn_bytes: int = attrs.field(init=False)
    _utterances: list[Utterance] = attrs.field(factory=list)
    _offers: list[ToolOffer] = attrs.field(factory=list)
    _refusals: int = 0
    _cuts: int = 0
    _trimmed: bool = False
    _wrapping: bool = False
    _force: bool = False
    #: Tokens that the provider counted for the last call, and the bytes that were added since.
    _known_tokens: int = 0
    _new_bytes: int = 0

    async def run(self) -> dict[str, Any]:
        """The answer, checked. Raises `RunFailed`."""
        self._offers = await self.tools.offers()
        self.tools.ids |= set(self.request.known_ids)
        self._say("user", [SaidText(self.request.prompt)])
        self._new_bytes += self._own_bytes()
        while True:
            is_last = self._is_last()
            answer = await self._answer(SUBMIT if is_last or self._force else None)
            self._utterances.append(Utterance("assistant", answer.blocks, answer.verbatim))
            uses = [block for block in answer.blocks if isinstance(block, ToolUse)]
            self._force = False
            # What was cut off is the last that was begun.
            unfinished = uses[-1] if answer.cut and uses and answer.blocks[-1] is uses[-1] else None
            if answer.cut:
                self._cuts += 1
                self.tell("cut", tokens=self._out)
            if not uses:
                why = f"Your answer was cut at {self._out} tokens. " if answer.cut else ""
                self._say("user", [SaidText(f"{why}Call a tool, or {SUBMIT} to end.")])
                self._refused()
                self._force = True
                continue
            blocks: list[Block] = []
            room = self._turn_bytes
            for number, use in enumerate(uses):
                if use.name == SUBMIT:
                    submission = self._submitted(use, unfinished=use is unfinished)
                    if not isinstance(submission, ToolAnswer):
                        return submission
                    block = submission
                elif use is unfinished:
                    block = ToolAnswer(use.id, self._said_cut(), True)
                elif is_last:
                    block = ToolAnswer(use.id, f"the budget is used up: only {SUBMIT} is left", True)
                elif number >= CALLS_A_TURN or room <= 0:
                    block = ToolAnswer(use.id, "too much for one turn: call it again in the next", True)
                else:
                    block = await self.tools.call(use)
                    room -= len(block.text.encode())
                blocks.append(block)
            self._say("user", blocks)

    def __attrs_post_init__(self) -> None:
        self._turn_bytes = turn_bytes(self.meter.limits)

    @property
    def _out(self) -> int:
        """The longest answer, which leaves room for what it answers."""
        limits = self.meter.limits
        return min(limits.output_tokens, limits.context_tokens // 2)

    def _say(self, role: Any, blocks: Sequence[Block]) -> None:
        self._utterances.append(Utterance(role, blocks))
        self._new_bytes += sum(_bytes(block) for block in blocks)

    def _said_cut(self) -> str:
        return f"your answer was cut at {self._out} tokens, before this call was complete: be shorter"

    def _submitted(self, use: ToolUse, *, unfinished: bool) -> dict[str, Any] | ToolAnswer:
        """The answer as it counts, or what is wrong with it."""
        evidence = self.tools.shown()
        checklist = self.request.checklist
        arguments = use.arguments
        problems = ["it is no JSON object"]
        if arguments is not None:
            problems = faults(self.request.kind, arguments, evidence, checklist)
        if problems and unfinished:
            self._refused()
            return ToolAnswer(use.id, self._said_cut(), True)
        if problems:
            self._refused()
            listed = "\n".join(f"- {problem}" for problem in problems)
            return ToolAnswer(use.id, f"refused, mend it and submit again:\n{listed}", True)
        answer = tidied(cast(Mapping[str, Any], arguments), self.literal)
        if self.request.kind == "rca":
            answer = completed(answer, checklist)
        unsupported_claims = unsupported(self.request.kind, answer, evidence)
        return {**answer, "unsupported": unsupported_claims, "notes": self.tools.notes()}

    def _refused(self) -> None:
        self._refusals += 1
        # Never what the model wrote: it may hold what it read.
        self.tell("refused", why=f"the answer was refused ({self._refusals} of {REFUSALS})")
        if self._refusals >= REFUSALS:
            cut = f", {self._cuts} cut at the model's bound of {self._out} tokens" if self._cuts else ""
            raise RunFailed("bad_output", f"{REFUSALS} answers were refused{cut}")

    def _own_bytes(self) -> int:
        """What the texts of ours weigh that come with every call, at the price of others' bytes."""
        own = len(self.request.system_prompt.encode()) + sum(
            len(msgspec.json.encode((tool.description, tool.schema))) for tool in self._offers
        )
        return own * BYTES_A_TOKEN // OWN_BYTES_A_TOKEN

    def _tokens(self) -> int:
        """How many tokens the next call reads, at most."""
        return self._known_tokens + self._new_bytes // BYTES_A_TOKEN + 1

    def _tokens_after(self) -> int:
        """How many the call after that reads, at most."""
        return self._tokens() + self._out + self._turn_bytes // BYTES_A_TOKEN

    def _full(self) -> bool:
        """Whether another turn might leave no room for the last one."""
        return self._tokens_after() + self._out > self.meter.limits.context_tokens

    def _is_last(self) -> bool:
        """Whether the next turn has to be the last. Raises `RunFailed` when not even that fits."""
        out = self._out
        if self._full() and not self._trimmed:
            self._trim()
        call = self.meter.worst(self._tokens(), out)
        next_call = self.meter.worst(self._tokens_after(), out)
        full = self._full()
        if not self._wrapping and not full and not self.meter.late and self.meter.fits(call, next_call):
            return False
        if not self.meter.fits(call) and not self._trimmed:
            self._trim()
            call = self.meter.worst(self._tokens(), out)
        if not self.meter.fits(call):
            raise RunFailed("budget", "the budget was used up before there was an answer")
        if not self._wrapping:
            self._wrapping = True
            self.tell("wrapping_up")
        return True

    def _trim(self) -> None:
        """Leave the refs and heads of all results but the newest."""
        self._trimmed = True
        older = self._utterances[:-1]
        self._utterances[:-1] = [
            attrs.evolve(utterance, blocks=[_trimmed(block) for block in utterance.blocks])
            for utterance in older
        ]
        self._known_tokens = 0
        self._new_bytes = self._own_bytes() + sum(map(_weight, self._utterances))

    async def _answer(self, forced: str | None) -> ModelAnswer:
        """One answer, asked for again where that may help. Raises `RunFailed`."""
        question = ModelQuestion(
            self.request.system_prompt,
            tuple(self._utterances),
            self._offers,
            self._out,
            forced,
        )
        worst = self.meter.worst(self._tokens(), self._out)
        for pause_s in (*RETRY_S, None):
            try:
                answer = await self.provider.ask(
                    question, timeout_s=max(self.meter.left_s, 1.0), sent=partial(self.meter.reserve, worst)
                )
            except ModelRefused as refused:
                await self._again(refused, worst, pause_s)
                continue
            used = self.meter.charge(answer.used, worst)
            self._known_tokens = used.input + used.cache_read + used.cache_write + used.output
            self._new_bytes = 0
            self.tell("turn", n=self.meter.spent.turns, spent=msgspec.to_builtins(self.meter.spent))
            return answer
        raise AssertionError("the last pause raises")

    async def _again(self, refused: ModelRefused, worst: Spent, pause_s: float | None) -> None:
        """Wait before the provider is asked again. Raises `RunFailed` where that is over."""
        if refused.kind in ("lost", "bad_answer"):
            self.meter.forfeit(worst)
        else:
            self.meter.release()
        if not refused.again or pause_s is None:
            raise RunFailed.of(refused, self.literal)
        wait_s = max(pause_s, refused.again_s or 0.0)
        if wait_s >= self.meter.left_s:
            raise RunFailed.of(refused, self.literal, "; there is no time to ask again")
        if not self.meter.fits(worst):
            raise RunFailed("budget", "what lost calls may have cost used the budget up")
        self.tell("retry", status=refused.status, wait_s=wait_s)
        await trio.sleep(wait_s)


def _weight(utterance: Utterance) -> int:
    if utterance.verbatim is not None:
        return len(msgspec.json.encode(utterance.verbatim))
    return sum(_bytes(block) for block in utterance.blocks)


def _bytes(block: Block) -> int:
    match block:
        case SaidText(text) | ToolAnswer(_, text):
            return len(text.encode()) + 20
        case ToolUse(_, name, arguments):
            return len(msgspec.json.encode(arguments)) + len(name) + 40


def _trimmed(block: Block) -> Block:
    if isinstance(block, ToolAnswer) and len(block.text) > TRIMMED_CHARS:
        return attrs.evolve(block, text=f"{block.text[:TRIMMED_CHARS]}\n… trimmed: the context was full")
    return block
