"""Keys that a new version of an exporter renamed: said when one vanished and one of a like name appeared."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from svc.domain.dialects import DIALECTS
from svc.domain.dialects.table import GENAI
from svc.domain.exporters.counters import Observations, SeenSpans
from svc.domain.exporters.renamed_keys import (
    KNOWN_KEYS,
    MOST_WATCHED,
    KnownKeys,
    RenamedKey,
    Sightings,
    likeness,
    merge_sightings,
    note_keys,
    renamed_keys,
    subject_of,
)
from svc.domain.exporters.report import remap_line, rename_text
from svc.domain.intake.mapping import map_span
from svc.domain.spans.span import instant
from tests.domain import BOOK, START_NS, wire

NOW = instant(START_NS)
OLD, NEW = "langsmith.usage_metadata", "langsmith.metadata.usage_metadata"
USAGE = json.dumps(
    {
        "input_tokens": 1000,
        "output_tokens": 50,
        "input_token_details": {"cache_read": 800},
        "output_token_details": {"reasoning": 20},
    }
)
RUN = {
    "langsmith.span.kind": "llm",
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.input_tokens": 1000,
    "gen_ai.usage.output_tokens": 50,
}
#: As a release before the rename knew LangSmith: usage objects under other keys were not looked for.
BEFORE = KnownKeys.of(dialect for dialect in DIALECTS if dialect.name != "any_key")


def sent(*batches: tuple[str, datetime, int]) -> SeenSpans:
    """What is kept of spans that had their usage under these keys at these times."""
    whole = SeenSpans()
    for key, moment, count in batches:
        observations = Observations()
        for _ in range(count):
            span = wire({**RUN, key: USAGE})
            observations.note(1, moment, span, map_span(span, BOOK))
        for totals in observations.take().values():
            # Through the database and back.
            whole.merge(SeenSpans.of_json(json.loads(json.dumps(totals.as_json())), totals.last_seen_at))
    return whole


def test_langsmiths_rename_is_said_within_the_hour_by_a_release_that_does_not_know_it() -> None:
    later = NOW + timedelta(minutes=40)
    seen = sent((OLD, NOW, 5), (NEW, later, 3))
    assert renamed_keys(seen.watched, BEFORE) == [RenamedKey("usage", OLD, NEW, int(later.timestamp()))]
    # This one reads the new key, so nothing is lost.
    assert renamed_keys(seen.watched, KNOWN_KEYS) == []


def test_while_both_come_nothing_is_said_and_once_one_stays_away_it_is() -> None:
    minutes = [NOW + timedelta(minutes=number) for number in range(0, 90, 5)]
    mixed = [(OLD, moment, 1) for moment in minutes[:10]] + [(NEW, moment, 1) for moment in minutes[6:10]]
    assert renamed_keys(sent(*mixed).watched, BEFORE) == []
    alone = [(NEW, moment, 1) for moment in minutes[10:16]]
    assert [rename.new for rename in renamed_keys(sent(*mixed, *alone).watched, BEFORE)] == [NEW]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gen_ai.usage.input_tokens", "genai.usage.input_tokens"),
        ("gen_ai.conversation.id", "gen_ai.chat.conversation.id"),
        ("gen_ai.input.messages", "gen_ai.inputs.messages"),
        ("llm.token_count.prompt", "llm.token_count.prompt_tokens"),
        ("ai.response.text", None),
        ("gen_ai.usage.input_tokens", "gen_ai.request.max_tokens"),
        ("gen_ai.input.messages", "db.statement.input"),
        ("session.id", "session.id"),
    ],
)
def test_names_that_are_alike_are_a_rename_and_others_are_not(old: str, new: str | None) -> None:
    sightings: Sightings = {}
    for _ in range(3):
        note_keys(sightings, [old], 1000)
        note_keys(sightings, [] if new is None else [new], 2000)
    renames = [(rename.old, rename.new) for rename in renamed_keys(sightings, KNOWN_KEYS)]
    like = new is not None and new != old and new not in KNOWN_KEYS.others and likeness(old, new) >= 0.5
    assert renames == ([(old, new)] if like else [])
    assert like == (new is not None and new.startswith(("genai.", "gen_ai.chat", "gen_ai.inputs", "llm.")))


def _spellings(key: str) -> list[str]:
    """Names that a release of the conventions might give to a key next."""
    head, _, tail = key.rpartition(".")
    return [f"{head}.{tail}_next", f"{head}.next.{tail}", key.replace("gen_ai.", "genai.", 1)]


#: What is retrieved and remembered is no model's call, whose keys alone are watched.
_WATCHED = sorted(key for key in KnownKeys.of([GENAI]).subjects if subject_of(key) is not None)


@pytest.mark.parametrize("key", [key for key in _WATCHED if key.startswith("gen_ai.")])
def test_whichever_key_of_the_conventions_is_renamed_next_it_is_noticed(key: str) -> None:
    for spelling in _spellings(key):
        assert not KNOWN_KEYS.reads(spelling)
        sightings: Sightings = {}
        for _ in range(3):
            note_keys(sightings, [key, "gen_ai.operation.name"], 1000)
            note_keys(sightings, [spelling, "gen_ai.operation.name"], 2000)
        assert [(rename.old, rename.new) for rename in renamed_keys(sightings, KNOWN_KEYS)] == [
            (key, spelling)
        ]


def test_keys_that_always_came_beside_each_other_are_no_rename() -> None:
    sightings: Sightings = {}
    for moment in (1000, 2000, 3000):
        note_keys(sightings, ["gen_ai.usage.input_tokens", "my.usage.input_tokens"], moment)
    for moment in (10_000, 20_000):
        note_keys(sightings, ["my.usage.input_tokens"], moment)
    assert renamed_keys(sightings, KNOWN_KEYS) == []


def test_a_rename_to_a_key_that_is_read_loses_nothing_whatever_else_is_new_beside_it() -> None:
    sightings: Sightings = {}
    for _ in range(3):
        note_keys(sightings, ["gen_ai.usage.prompt_tokens"], 1000)
        note_keys(sightings, ["gen_ai.usage.input_tokens", "gen_ai.usage.billed_tokens"], 2000)
    assert renamed_keys(sightings, KNOWN_KEYS) == []


def test_two_spans_are_not_enough_to_say_it() -> None:
    assert renamed_keys(sent((OLD, NOW, 5), (NEW, NOW + timedelta(hours=1), 2)).watched, BEFORE) == []


def test_what_is_watched_is_bounded_and_the_newest_stay() -> None:
    sightings: Sightings = {}
    note_keys(sightings, (f"my.token.a{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(500)), 1000)
    note_keys(sightings, ["gen_ai.usage.input_tokens"], 2000)
    merge_sightings(sightings, {})
    assert len(sightings) == MOST_WATCHED
    assert "gen_ai.usage.input_tokens" in sightings


@pytest.mark.parametrize(
    ("key", "subject"),
    [
        ("gen_ai.usage.prompt_tokens", "usage"),
        ("ai.usage.promptTokens", "usage"),
        ("langsmith.metadata.thread_id", "session"),
        ("gen_ai.input.messages", "content"),
        ("http.route", None),
    ],
)
def test_a_key_speaks_of_its_subject_by_its_words(key: str, subject: Any) -> None:
    assert subject_of(key) == subject


def test_the_words_name_both_keys_what_is_lost_and_the_line_that_reads_history_anew() -> None:
    words = rename_text(RenamedKey("usage", OLD, NEW, int(NOW.timestamp())), "--org acme --project shop")
    assert f"have {NEW} and no longer {OLD}" in words
    assert "tokens of model calls are missing" in words
    assert f'set(attributes["{OLD}"], attributes["{NEW}"])' in words
    assert words.endswith("trace-svc remap --org acme --project shop --apply")
    assert remap_line("") == "trace-svc remap --apply"
