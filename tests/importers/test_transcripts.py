"""Transcripts of Claude Code and Codex: turns as traces, each call once, whatever the files' state."""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path

import msgspec
import pytest
import zstandard

from protocol.operator import OperatorError
from svc.domain.intake.batches import StoredSpan
from svc.domain.pricing.prices import PriceBook
from svc.domain.spans.span import TOKEN_BUCKETS, SpanRow
from svc.importers import transcripts
from svc.importers.source import ImportPage, ImportWindow
from svc.importers.transcripts import CUT_OFF, NO_FIELDS, NO_JSON, TOO_LONG, TranscriptFolder
from tests.importers.replies import WINDOW, every_page, rows_of
from tests.importers.transcribed import (
    FOLDER,
    FORK,
    SESSION,
    START,
    THREAD,
    URL,
    Claude,
    claude_folder,
    codex_folder,
    first_turn,
    lines,
    second_turn,
    text,
    tool,
    usage,
)


def source_of(product: str, folder: Path, user: str | None = None) -> TranscriptFolder:
    return TranscriptFolder.at(product, folder, product, user)


async def spans_of(product: str, folder: Path) -> dict[bytes, StoredSpan]:
    return rows_of(await every_page(source_of(product, folder)))


def named(spans: dict[bytes, StoredSpan]) -> dict[str, list[SpanRow]]:
    """Rows by their names, in the order of time."""
    rows: dict[str, list[SpanRow]] = {}
    for span in sorted(spans.values(), key=lambda span: span.row.started_at):
        rows.setdefault(span.row.name, []).append(span.row)
    return rows


def buckets(row: SpanRow) -> tuple[int | None, ...]:
    return tuple(getattr(row, bucket) for bucket in TOKEN_BUCKETS)


def attributes_of(page: ImportPage) -> dict[str, str]:
    (_, body), *_ = page.bodies
    fields = msgspec.json.decode(body)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    return {pair["key"]: next(iter(pair["value"].values()), None) for pair in fields}


async def test_a_turn_of_claude_code_is_a_trace_with_its_calls_its_tools_and_its_sub_agent(
    tmp_path: Path,
) -> None:
    claude_folder(tmp_path)
    spans = await spans_of("claude-code", tmp_path)
    rows = named(spans)
    assert {name: len(group) for name, group in rows.items()} == {
        "invoke_agent claude-code": 2,
        "invoke_agent Explore": 1,
        "chat claude-opus-4-5-20251101": 7,
        "execute_tool Bash": 1,
        "execute_tool Task": 1,
        "execute_tool Grep": 1,
    }
    first, second = rows["invoke_agent claude-code"]
    assert (first.kind, first.input_preview, first.output_preview) == (
        "agent", "Why do returns fail?", "A rounding error.",
    )  # fmt: skip
    assert (first.parent_span_id, second.input_preview) == (None, "Fix it.")
    (explorer,), (task,), (grep,) = (
        rows["invoke_agent Explore"], rows["execute_tool Task"], rows["execute_tool Grep"],
    )  # fmt: skip
    assert (explorer.parent_span_id, grep.parent_span_id) == (task.span_id, explorer.span_id)
    assert {row.row.trace_id for row in spans.values()} == {first.trace_id, second.trace_id}
    assert {(row.row.session_id, row.row.user_id) for row in spans.values()} == {(SESSION, "mara")}


async def test_tokens_of_claude_code_are_those_of_its_last_lines_and_cost_what_the_price_book_says(
    tmp_path: Path,
) -> None:
    claude_folder(tmp_path)
    calls = named(await spans_of("claude-code", tmp_path))["chat claude-opus-4-5-20251101"]
    calls = [row for row in calls if row.status == "ok"]
    assert {buckets(row) for row in calls} == {
        (3, 40, 5000, 1000, None), (5, 30, 6000, 200, None), (10, 15, 0, 0, None),
        (70, 15, 0, 0, None), (7, 20, 7000, 0, None), (2, 10, 9000, 50, None),
    }  # fmt: skip
    million = Decimal(1_000_000)
    # Of Opus 4.5, by the list: 5, 25, 0.50 and 6.25 dollars a million.
    rates = (Decimal(5), Decimal(25), Decimal("0.5"), Decimal("6.25"))
    for row in calls:
        expected = (
            sum((count or 0) * rate for count, rate in zip(buckets(row), rates, strict=False)) / million
        )
        assert (row.total_cost, row.cost_source, row.provider) == (expected, "inferred", "anthropic")


async def test_what_failed_in_claude_code_has_failed_in_its_own_words(tmp_path: Path) -> None:
    claude_folder(tmp_path)
    rows = named(await spans_of("claude-code", tmp_path))
    failed = [row for row in chain.from_iterable(rows.values()) if row.status == "error"]
    assert [(row.name, row.error_type, row.error_message) for row in failed] == [
        ("chat claude-opus-4-5-20251101", "overloaded", "API Error: 529 overloaded"),
        ("execute_tool Bash", failed[1].error_type, "Exit code 1\n2 failed"),
    ]
    assert failed[0].provided_model_name == "claude-opus-4-5-20251101"
    assert failed[0].total_cost is None


async def test_repository_branch_and_user_are_attributes_of_every_span(tmp_path: Path) -> None:
    claude_folder(tmp_path)
    attributes = attributes_of((await every_page(source_of("claude-code", tmp_path, "ines")))[0])
    assert attributes.items() >= {
        "vcs.repository.name": "shop",
        "vcs.ref.head.name": "feature/returns",
        "user.id": "ines",
        "process.working_directory": FOLDER,
        "gen_ai.agent.version": "2.1.79",
    }.items()  # fmt: skip
    codex_folder(tmp_path / "codex")
    attributes = attributes_of((await every_page(source_of("codex", tmp_path / "codex")))[0])
    assert attributes.items() >= {
        "vcs.repository.name": "shop",
        "vcs.repository.url.full": URL,
        "vcs.ref.head.name": "feature/returns",
        "vcs.ref.head.revision": "4f2a",
        "user.id": "mara",
    }.items()  # fmt: skip


async def test_what_claude_code_cached_for_an_hour_is_priced_as_that(tmp_path: Path) -> None:
    file = Claude()
    file.prompt("Fix it.")
    written = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 4000}
    told = {**usage(10, 20, write=4000), "cache_creation": written}
    file.answer("msg_01", text("Done."), told, stop_reason="end_turn")
    folder = tmp_path / "-home-mara-shop"
    folder.mkdir()
    (folder / f"{SESSION}.jsonl").write_bytes(lines(file.rows))
    (call,) = named(await spans_of("claude-code", tmp_path))["chat claude-opus-4-5-20251101"]
    assert (call.cache_write_tokens, call.cache_write_1h_tokens) == (4000, 4000)
    assert call.cache_write_cost == 4000 * Decimal(10) / 10**6


async def test_a_turn_of_codex_is_a_trace_and_usage_that_is_told_twice_counts_once(tmp_path: Path) -> None:
    codex_folder(tmp_path)
    rows = named(await spans_of("codex", tmp_path))
    assert {name: len(group) for name, group in rows.items()} == {
        "invoke_agent codex": 2,
        "invoke_agent subagent": 1,
        "chat gpt-5-codex": 5,
        "execute_tool exec_command": 1,
        "execute_tool spawn_agent": 1,
        "execute_tool apply_patch": 1,
    }
    calls = rows["chat gpt-5-codex"]
    assert sorted(map(buckets, calls), key=str) == [
        (1000, 56, 3000, None, 64), (300, 10, 4700, None, 0), (300, 20, 4400, None, 10),
        (400, 80, 4000, None, 0), (900, 20, 0, None, 5),
    ]  # fmt: skip
    price = PriceBook().price(
        provider="openai", model="gpt-5-codex", at=START, input_tokens=1000, output_tokens=56,
        cache_read_tokens=3000, reasoning_tokens=64,
    )  # fmt: skip
    assert (calls[0].total_cost, calls[0].provider) == (price.total_cost, "openai")
    assert price.total_cost == Decimal("0.0028250")
    turn, forked = rows["invoke_agent codex"]
    assert (turn.input_preview, turn.output_preview) == ("Why do returns fail?", "A rounding error.")
    assert (turn.session_id, forked.session_id, forked.input_preview) == (THREAD, FORK, "And exchanges?")
    (child,), (spawn,) = rows["invoke_agent subagent"], rows["execute_tool spawn_agent"]
    assert (child.trace_id, child.parent_span_id) == (spawn.trace_id, spawn.span_id)
    assert child.session_id == THREAD
    (shell,), (patch,) = rows["execute_tool exec_command"], rows["execute_tool apply_patch"]
    assert (shell.status, patch.status) == ("error", "ok")
    assert "2 failed" in (shell.error_message or "")


async def test_a_call_that_counts_in_one_place_counts_once_in_its_trace(tmp_path: Path) -> None:
    """A tool that an answer asks for and the span of its call are one call."""
    claude_folder(tmp_path / "claude")
    codex_folder(tmp_path / "codex")
    for product in ("claude-code", "codex"):
        spans = await spans_of(product, tmp_path / product.partition("-")[0])
        called = Counter(
            call.call_id for span in spans.values() for call in span.row.tool_calls if span.row.kind == "tool"
        )
        assert len(called) == 3
        assert set(called.values()) == {1}


@pytest.mark.parametrize("product", ["claude-code", "codex"])
async def test_read_in_any_pieces_and_gone_on_with_anywhere_the_spans_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, product: str
) -> None:
    (claude_folder if product == "claude-code" else codex_folder)(tmp_path)
    expected = await spans_of(product, tmp_path)
    monkeypatch.setattr(transcripts, "PAGE_LINES", 1)
    pages: list[ImportPage] = []
    while not pages or pages[-1].cursor is not None:
        # Each page by a run of its own, which knows nothing but the cursor.
        cursor = pages[-1].cursor if pages else None
        pages.append(await source_of(product, tmp_path).page(WINDOW, cursor))
    assert len(pages) > 15
    assert rows_of(pages).keys() == expected.keys()
    for key, span in rows_of(pages).items():
        assert msgspec.to_builtins(span.row) == msgspec.to_builtins(expected[key].row)


async def test_a_transcript_that_grew_gives_the_same_spans_and_more(tmp_path: Path) -> None:
    whole = claude_folder(tmp_path / "whole").read_bytes()
    expected = await spans_of("claude-code", tmp_path / "whole")
    file = claude_folder(tmp_path / "growing", turns=1)
    rows = whole.splitlines(keepends=True)
    seen: set[bytes] = set()
    for count in range(3, len(rows) + 1):
        file.write_bytes(b"".join(rows[:count]))
        spans = await spans_of("claude-code", tmp_path / "growing")
        assert seen <= spans.keys() <= expected.keys()
        seen = set(spans)
    assert seen == expected.keys()


async def test_copies_of_a_session_that_was_continued_elsewhere_add_nothing(tmp_path: Path) -> None:
    file = claude_folder(tmp_path)
    expected = await spans_of("claude-code", tmp_path)
    copy = Claude(session="ffffffff-0000-4000-8000-000000000000")
    first_turn(copy)
    second_turn(copy)
    for row in copy.rows:
        row["forkedFrom"] = {"sessionId": SESSION, "messageUuid": row.get("uuid")}
    copy.prefix = "later"
    copy.prompt("And now?")
    copy.answer("msg_05", text("Done."), usage(1, 2), stop_reason="end_turn")
    (file.parent / f"{copy.session}.jsonl").write_bytes(lines(copy.rows))
    spans = await spans_of("claude-code", tmp_path)
    new = [span.row for key, span in spans.items() if key not in expected]
    assert {row.name for row in new} == {"invoke_agent claude-code", "chat claude-opus-4-5-20251101"}
    assert {row.session_id for row in new} == {copy.session}
    assert all(spans[key].row.session_id == SESSION for key in expected)


async def test_sub_agents_of_older_releases_stand_between_the_lines_of_their_session(tmp_path: Path) -> None:
    file = Claude()
    file.prompt("Ask two of them")
    file.answer("msg_01", tool("toolu_a", "Task", subagent_type="Plan", prompt="plan it"), usage(1, 1))
    file.answer("msg_01", tool("toolu_b", "Task", subagent_type="Check", prompt="check it"), usage(1, 2))
    for prompt, message_id in (("plan it", "msg_p"), ("check it", "msg_c")):
        file.prompt(prompt, isSidechain=True, parentUuid=None)
        file.answer(message_id, text(f"{prompt}: done"), usage(5, 5), isSidechain=True)
    file.result("toolu_a", "planned")
    file.result("toolu_b", "checked")
    file.answer("msg_02", text("Both are done."), usage(1, 1))
    (tmp_path / f"{SESSION}.jsonl").write_bytes(lines(file.rows))
    rows = named(await spans_of("claude-code", tmp_path))
    tasks = {row.tool_calls[0].call_id: row.span_id for row in rows["execute_tool Task"]}
    assert rows["invoke_agent Plan"][0].parent_span_id == tasks["toolu_a"]
    assert rows["invoke_agent Check"][0].parent_span_id == tasks["toolu_b"]
    assert len({row.trace_id for row in chain.from_iterable(rows.values())}) == 1


async def test_damaged_lines_are_counted_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = claude_folder(tmp_path)
    expected = await spans_of("claude-code", tmp_path)
    whole = file.read_bytes().splitlines(keepends=True)
    monkeypatch.setattr(transcripts, "MOST_BYTES", 3_000_000)
    damage = [b'{"type": "user", \n', b"\xff\xfe\n", b"[1]\n", b'{"type":"user"}\n', b"[" * 100_000 + b"\n"]
    damage.append(b'{"a":"' + b"x" * 4_000_000 + b'"}\n')
    file.write_bytes(b"".join(row for pair in zip(whole, damage, strict=False) for row in pair))
    file.write_bytes(file.read_bytes() + b"".join(whole[len(damage) :]) + b'{"type":"assistant","mess')
    pages = await every_page(source_of("claude-code", tmp_path))
    unread: Counter[str] = Counter()
    for page in pages:
        unread.update(page.unread)
    assert unread == {NO_JSON: 5, NO_FIELDS: 1, TOO_LONG: 1}
    assert rows_of(pages).keys() == expected.keys()


async def test_a_rollout_that_codex_packed_is_unpacked_and_one_that_is_cut_off_is_counted(
    tmp_path: Path,
) -> None:
    file = codex_folder(tmp_path)
    expected = await spans_of("codex", tmp_path)
    # More than one block, the last of which holds nothing new.
    rest = b"".join(
        b'{"type":"world_state","state":"%s"}\n' % os.urandom(60).hex().encode() for _ in range(9_000)
    )
    packed = zstandard.ZstdCompressor().compress(file.read_bytes() + rest)
    file.unlink()
    other = file.with_name(f"{file.name}.zst")
    other.write_bytes(packed)
    assert (await spans_of("codex", tmp_path)).keys() == expected.keys()
    other.write_bytes(packed[:-200_000] + bytes(200_000))
    pages = await every_page(source_of("codex", tmp_path))
    assert CUT_OFF in {reason for page in pages for reason in page.unread}
    assert rows_of(pages).keys() == expected.keys()


async def test_files_that_were_not_written_since_are_not_read(tmp_path: Path) -> None:
    file = claude_folder(tmp_path)
    old = (START - timedelta(days=30)).timestamp()
    os.utime(file, (old, old))
    window = ImportWindow(START - timedelta(days=1), WINDOW.high)
    rows = named(rows_of(await every_page(source_of("claude-code", tmp_path), window)))
    assert "invoke_agent claude-code" not in rows
    assert len(rows["invoke_agent Explore"]) == 1


def test_a_folder_without_transcripts_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"does not exist; transcripts of Codex are in ~/.codex/sessions"):
        source_of("codex", tmp_path / "none")
    with pytest.raises(OperatorError, match=r"no transcript of Claude Code .*it has no such file"):
        source_of("claude-code", tmp_path)
    (tmp_path / "history.jsonl").write_bytes(b'{"display":"hello"}\n')
    with pytest.raises(OperatorError, match=r"its 1 files of that name are something else"):
        source_of("claude-code", tmp_path)
    codex_folder(tmp_path / "codex")
    with pytest.raises(OperatorError, match=r"are of Codex: trace-svc import codex"):
        source_of("claude-code", tmp_path)


async def test_a_turn_without_end_is_read_page_by_page(tmp_path: Path) -> None:
    file = Claude()
    file.prompt("Go on for ever")
    for number in range(2_500):
        file.answer(f"msg_{number}", tool(f"toolu_{number}", "Read", file_path="a"), usage(1, 1))
        file.result(f"toolu_{number}", "x")
    (tmp_path / f"{SESSION}.jsonl").write_bytes(lines(file.rows))
    pages = await every_page(source_of("claude-code", tmp_path))
    assert len(pages) == 7
    assert max(len(page.told) for page in pages) <= transcripts.PAGE_LINES + 2
    assert sum(len(page.told) for page in pages) == 5_001
