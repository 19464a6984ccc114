"""Laws of tallying of conversations: what was said again is not fetched, and what was counted is the
same.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import zstandard

from svc.domain.intake.packing import pack_message
from svc.store.detection.counting import tallying
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.postgres.database import Connection, Database
from svc.store.spans import payloads
from tests.domain.detect.secrets.test_secrets import POSITIVES
from tests.store.detection.counting.test_tallying import (
    CHAT,
    begin,
    cell,
    counted,
    recounted,
    settle,
    tally_all,
    write,
)
from tests.store.spans.test_writing import NOW, fetch, one

WORDS = "the parcel has left the warehouse and arrives on Friday " * 5
KEY = b"k" * 32


def said(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": f"{words} {WORDS}"}]}


def conversation(trace: int, user: str, last: str) -> list[Any]:
    """A trace of four model calls, each with all that was said before it."""
    history = [said("system", "You help."), said("user", user)]
    spans = []
    for turn in range(4):
        answer = said("assistant", last if turn == 3 else f"{trace}.{turn}")
        spans.append(
            one(
                turn + 1,
                trace_id=trace.to_bytes(16, "big"),
                start=NOW + timedelta(seconds=turn),
                parent=int(turn > 0),
                name="chat",
                attributes=CHAT
                | {
                    "gen_ai.input.messages": json.dumps(history),
                    "gen_ai.output.messages": json.dumps([answer]),
                },
            )
        )
        history += [answer, said("user", f"{trace}.{turn}?")]
    return spans


async def test_of_conversations_nothing_is_fetched_that_users_said_again(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    for trace in (1, 2, 3):
        await write(store, *conversation(trace, f"{trace}: where is it?", "On its way."))
    await settle(store)
    fetched: list[bytes] = []
    unpack = payloads.unpack_messages

    def unpacking(stored: dict[bytes, bytes]) -> dict[bytes, bytes]:
        found = unpack(stored)
        fetched.extend(found.values())
        return found

    monkeypatch.setattr(payloads, "unpack_messages", unpacking)
    await tally_all(store)
    found = await counted(store)
    # What models answer is looked at, and the system's message is one for all.
    assert sorted(msgspec.json.decode(text)["role"] for text in fetched) == ["assistant"] * 7 + ["system"]
    assert cell(found, "seen_prompt", "site:writer") == [(3, 0)]
    assert cell(found, "cut_rate", "site:writer") == [(3, 0)]
    # As the release before wrote them: then everything is.
    for row in await fetch(store, "select trace_id, frame, body from span_payload"):
        pieces = msgspec.msgpack.decode(zstandard.decompress(row["body"]))
        assert len(pieces) == 3
        old = pack_message(msgspec.msgpack.encode(pieces[:2]))
        await fetch(
            store,
            "update span_payload set body = $3 where trace_id = $1 and frame = $2",
            row["trace_id"],
            row["frame"],
            old,
        )
    fetched.clear()
    assert await recounted(store) == found
    assert len(fetched) > 20


@pytest.mark.parametrize(("told_first", "measure"), [(True, "secret_low"), (False, "secret_high")])
async def test_a_secret_that_the_user_said_is_found_in_a_history_that_need_not_be_fetched(
    store: Database, told_first: bool, measure: str
) -> None:
    await begin(store)
    text, _ = POSITIVES["github-pat"]()
    asked = text if told_first else "where is it?"
    # Of the second, all that was asked came before.
    await write(store, *conversation(1, asked, "On its way."))
    await write(store, *conversation(2, asked, text))
    await settle(store)
    await tally_all(store, PostgresTallyQueue(store, secret_key=KEY))
    found = await counted(store)
    assert {c["measure"] for c in found["cells"]} & {"secret_low", "secret_high"} == {measure}


async def test_a_trace_that_goes_while_its_history_is_fetched_was_never_there(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    text, _ = POSITIVES["github-pat"]()
    await write(store, *conversation(1, "where is it?", text))
    await settle(store)
    again = tallying.settled_traces

    async def gone(connection: Connection, project_id: int, _trace_ids: Any, kinds: Any) -> Any:
        return await again(connection, project_id, [bytes(16)], kinds)

    monkeypatch.setattr(tallying, "settled_traces", gone)
    done = await tally_all(store, PostgresTallyQueue(store, secret_key=KEY))
    assert done.traces == 0
    assert (await counted(store))["cells"] == []
