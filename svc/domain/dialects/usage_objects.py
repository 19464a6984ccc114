"""The usage that a provider's answer holds, where an instrumentation passes it on as the provider wrote it.

Owns: `details_in`, the parts of usage in the objects of OpenAI (chat and responses) and of Anthropic, and
`opened`, which reads an object that was written as JSON or as Python prints it. The dialects call it. Totals
are the instrumentation's to say: providers count them differently. Never raises over what a client sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from svc.domain.dialects.dialect import Field
from svc.domain.values import count, decoded

#: Usage that is longer than this is none.
USAGE_CHARS: Final = 4000

_PARTS: Final[tuple[tuple[tuple[str, ...], tuple[tuple[str, Field], ...]], ...]] = (
    (
        ("prompt_tokens_details", "input_tokens_details"),
        (
            ("cached_tokens", "cache_read_tokens"),
            ("cache_write_tokens", "cache_write_tokens"),
            ("cache_creation_tokens", "cache_write_tokens"),
            ("audio_tokens", "input_audio_tokens"),
        ),
    ),
    (
        ("completion_tokens_details", "output_tokens_details"),
        (("reasoning_tokens", "reasoning_tokens"), ("audio_tokens", "output_audio_tokens")),
    ),
)
_OWN: Final[tuple[tuple[str, Field], ...]] = (
    ("cache_read_input_tokens", "cache_read_tokens"),
    ("cached_input_tokens", "cache_read_tokens"),
    ("cache_creation_input_tokens", "cache_write_tokens"),
    ("cache_write_input_tokens", "cache_write_tokens"),
)
#: All that `details_in` may yield.
DETAILS: Final[tuple[Field, ...]] = (
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
)


def opened(value: Any, most_chars: int = USAGE_CHARS) -> dict[str, Any]:
    """The object in a value, written as JSON or as Python prints a dict; empty when there is none."""
    if type(value) is str:
        if len(value) > most_chars:
            return {}
        value = decoded(value.replace("'", '"').replace("None", "null") if "'" in value else value)
    return value if type(value) is dict else {}


def details_in(usage: Mapping[str, Any]) -> Iterable[tuple[Field, int]]:
    """What was read from and written to the cache, thought, heard and spoken, each at most once.

    Zeros are told where they stand: the provider says that it was none.
    """
    counts: dict[Field, int] = {}
    for names, fields in _PARTS:
        for part in names:
            if type(details := usage.get(part)) is dict:
                for key, field in fields:
                    if (tokens := count(details.get(key))) is not None:
                        counts.setdefault(field, tokens)
    for key, field in _OWN:
        if (tokens := count(usage.get(key))) is not None:
            counts[field] = max(tokens, counts.get(field, 0))
    return counts.items()
