"""Keys that an exporter stopped to send while one of a like name appeared: renamed by a new version of it.

Owns: which keys are watched (those of usage, sessions, content and models), when each was seen, and what
counts as a rename. `svc.domain.exporters.counters` notes the keys, the report of exporters asks. Pure; keys
only, never values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import attrs

from svc.domain.dialects import DIALECTS
from svc.domain.dialects.dialect import Dialect, Field

Subject = Literal["usage", "session", "content", "model"]

#: By which words a key speaks of a subject; the first that fits.
_SUBJECTS: Final[tuple[tuple[Subject, frozenset[str]], ...]] = (
    ("usage", frozenset({"usage", "token", "tokens"})),
    ("session", frozenset({"session", "thread", "conversation"})),
    (
        "content",
        frozenset({"message", "messages", "prompt", "prompts", "completion", "completions"})
        | {"input", "inputs", "output", "outputs"},
    ),
    ("model", frozenset({"model", "models"})),
)
_FIELDS: Final[Mapping[Field, Subject]] = {
    **dict.fromkeys(
        (
            *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
            "cache_write_1h_tokens",
            *("reasoning_tokens", "input_audio_tokens", "cached_audio_tokens", "output_audio_tokens"),
        ),
        "usage",
    ),
    "session_id": "session",
    **dict.fromkeys(("input_text", "input_value", "output_value"), "content"),
    **dict.fromkeys(("request_model", "response_model"), "model"),
}
_WORD: Final = re.compile(r"[a-z]+")
#: Camel case is taken apart before.
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

#: Keys watched of an exporter and day; those seen last are kept.
MOST_WATCHED: Final = 40
#: Spans with either key that it takes, of those looked into.
_ENOUGH: Final = 3
#: While copies are replaced one after the other, both keys come for a while.
_OVERLAP_S: Final = 30 * 60
#: How much of their words two names share that are alike.
_ALIKE: Final = 0.5


@attrs.frozen
class Sighting:
    """Of how many spans, and from when until when, in seconds since 1970."""

    spans: int
    first_s: int
    last_s: int

    def merged(self, other: Sighting) -> Sighting:
        """Both together."""
        return Sighting(
            self.spans + other.spans, min(self.first_s, other.first_s), max(self.last_s, other.last_s)
        )


Sightings = dict[str, Sighting]


@attrs.frozen
class RenamedKey:
    """A key that one of a like name replaced, and since when."""

    subject: Subject
    old: str
    new: str
    since_s: int


@attrs.frozen
class KnownKeys:
    """The keys that some dialects read: those of a subject, and all others by name."""

    subjects: Mapping[str, Subject]
    prefixes: tuple[str, ...]
    endings: tuple[str, ...]
    others: frozenset[str]

    @classmethod
    def of(cls, dialects: Iterable[Dialect]) -> KnownKeys:
        """What these read."""
        subjects: dict[str, Subject] = {}
        others: set[str] = set()
        prefixes: list[str] = []
        endings: list[str] = []
        for dialect in dialects:
            for field, keys in dialect.keys.items():
                others.update(keys)
                if (subject := _FIELDS.get(field)) is not None:
                    subjects.update(dict.fromkeys(keys, subject))
            subjects.update(dict.fromkeys((*dialect.input_keys, *dialect.output_keys), "content"))
            for key in dialect.marks:
                if (subject := subject_of(key)) is not None:
                    subjects[key] = subject
            others.update(key for key in dialect.reads if not key.endswith("*"))
            others.update(key for keys in dialect.details.values() for key in keys)
            prefixes += dialect.usage_prefixes
            endings += dialect.endings
        return cls(subjects, tuple(prefixes), tuple(endings), frozenset(others))

    def reads(self, key: str) -> bool:
        """Whether it is read by its name; that others begin so does not help it."""
        return key in self.subjects or key in self.others or key.endswith(self.endings)

    def subject_of(self, key: str) -> Subject | None:
        """What is read from this key; None where nothing of a subject is."""
        if (subject := self.subjects.get(key)) is not None:
            return subject
        return "usage" if key.startswith(self.prefixes) or key.endswith(self.endings) else None


def subject_of(key: str) -> Subject | None:
    """What a key speaks of by its words, known or not."""
    words = words_of(key)
    return next((subject for subject, spoken in _SUBJECTS if words & spoken), None)


def words_of(key: str) -> frozenset[str]:
    """The words of a name."""
    return frozenset(_WORD.findall(_HUMP.sub("_", key).lower()))


def note_keys(sightings: Sightings, keys: Iterable[str], moment_s: int) -> None:
    """A model call had these keys then."""
    for key in keys:
        if subject_of(key) is not None:
            sighting = Sighting(1, moment_s, moment_s)
            standing = sightings.get(key)
            sightings[key] = sighting if standing is None else standing.merged(sighting)
    if len(sightings) > 2 * MOST_WATCHED:
        cut(sightings)


def merge_sightings(sightings: Sightings, others: Mapping[str, Sighting]) -> None:
    """Add what somebody else saw."""
    for key, sighting in others.items():
        standing = sightings.get(key)
        sightings[key] = sighting if standing is None else standing.merged(sighting)
    cut(sightings)


def cut(sightings: Sightings) -> None:
    """Forget the keys that were seen longest ago, beyond the bound."""
    ranked = sorted(sightings, key=lambda key: (-sightings[key].last_s, -sightings[key].spans, key))
    for key in ranked[MOST_WATCHED:]:
        del sightings[key]


def sightings_json(sightings: Mapping[str, Sighting]) -> dict[str, tuple[int, int, int]]:
    """As they are stored."""
    return {key: attrs.astuple(sighting) for key, sighting in sightings.items()}


def sightings_of(stored: Mapping[str, Any]) -> Sightings:
    """What `sightings_json` gave."""
    return {key: Sighting(*numbers) for key, numbers in stored.items()}


def renamed_keys(sightings: Mapping[str, Sighting], known: KnownKeys) -> list[RenamedKey]:
    """The known keys that are no longer sent while an unknown one of a like name is."""
    renames: list[RenamedKey] = []
    for new, sighting in sightings.items():
        subject = subject_of(new)
        if subject is None or sighting.spans < _ENOUGH:
            continue
        if known.reads(new):
            continue
        candidates = [
            old
            for old, earlier in sightings.items()
            if known.subject_of(old) == subject
            and earlier.spans >= _ENOUGH
            and earlier.first_s < sighting.first_s
            and (earlier.last_s < sighting.first_s or sighting.last_s - earlier.last_s >= _OVERLAP_S)
            and likeness(old, new) >= _ALIKE
            and not _has_successor(old, subject, sightings, known)
        ]
        if candidates:
            old = max(candidates, key=lambda old: (likeness(old, new), old))
            renames.append(RenamedKey(subject, old, new, sighting.first_s))
    return sorted(renames, key=lambda rename: (rename.since_s, rename.new))


def _has_successor(old: str, subject: Subject, sightings: Mapping[str, Sighting], known: KnownKeys) -> bool:
    """Whether a key that is read took its place: what else is new beside that is no loss."""
    earlier = sightings[old]
    return any(
        known.reads(key)
        and known.subject_of(key) == subject
        and sighting.first_s > earlier.first_s
        and sighting.last_s > earlier.last_s
        and likeness(old, key) >= _ALIKE
        for key, sighting in sightings.items()
    )


def likeness(old: str, new: str) -> float:
    """Which part of their words two names share; all of it when their last parts are one."""
    if old.rpartition(".")[2] == new.rpartition(".")[2]:
        return 1.0
    mine, theirs = words_of(old), words_of(new)
    return len(mine & theirs) / len(mine | theirs) if mine | theirs else 0.0


KNOWN_KEYS: Final = KnownKeys.of(DIALECTS)
