"""Blocks that a prompt demands of every answer, and whether an answer has them.

Owns: `demanded_blocks` and `lacks`. Whoever opens payloads for detectors reads what a prompt demands, once
for each prompt; the mark `form_broken` compares. A demand counts only where a sentence makes it of all
answers and names no condition. Pure; never raises over what a client sent.
"""

from __future__ import annotations

import re
from typing import Final

#: So much of a prompt is read, and so many demands are kept.
_READ_CHARS: Final = 1 << 16
MOST_BLOCKS: Final = 8

#: A sentence, or a line of a list.
_SENTENCES: Final = re.compile(r"[^.!?;\n]{1,600}")
#: What makes a demand of a sentence, and of every answer.
_ALWAYS: Final = re.compile(
    r"(?i)\b(?:always|must)\b[^<`]{0,120}\b(?:answers?|repl(?:y|ies)|responses?|outputs?|messages?|respond|reply"
    r"|answer|wrap|enclose|put)\b|\b(?:every|each|all(?: of)? your|your (?:whole|entire)) "
    r"(?:answers?|repl(?:y|ies)|responses?|outputs?|messages?)\b"
)
#: What makes one conditional, or a prohibition, or speaks of one answer among several.
_CONDITION: Final = re.compile(
    r"(?i)\b(?:if|when|whenever|unless|once|until|may|can|could|might|optional(?:ly)?|either|or|not|never|no|only"
    r"|without|except|example|e\.g|instance|final|last|first|before|after|then|tool|function|user|don't|won't)\b"
)
#: The block: a tag, or a fence of code.
_TAG: Final = re.compile(
    r"(?i)\b(?:in|inside|within|between|with|into|using)\s+(?:an?\s+|the\s+)?[`'\"]?"
    r"(?:<([a-z][a-z0-9_-]{0,30})>|(```)(?:json|xml|yaml|python|sql)?\b)"
)


def demanded_blocks(prompt: str) -> tuple[str, ...]:
    """The blocks that a prompt demands of every answer: tags as `<name>`, a fence as three backticks."""
    text = prompt[:_READ_CHARS]
    if "<" not in text and "```" not in text:
        return ()
    blocks: dict[str, None] = {}
    for sentence in _SENTENCES.finditer(text):
        words = sentence[0]
        if ("<" in words or "```" in words) and _ALWAYS.search(words) and not _CONDITION.search(words):
            for match in _TAG.finditer(words):
                blocks[f"<{match[1].lower()}>" if match[1] else match[2]] = None
    return tuple(blocks)[:MOST_BLOCKS]


def lacks(block: str, answer: str) -> bool:
    """Whether an answer holds neither end of a block."""
    if block == "```":
        return block not in answer
    name = block[1:-1]
    return re.search(rf"(?i)</?{re.escape(name)}[\s/>]", answer) is None
