"""What a long command says while it waits: never nothing for long."""

from __future__ import annotations

import pytest
import trio

from svc.commands.terminal import BEAT_S, Teller


async def test_a_silence_is_broken_and_a_line_begins_it_anew(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    autojump_clock: trio.testing.MockClock,
) -> None:
    monkeypatch.setattr("svc.commands.terminal.time.monotonic", trio.current_time)
    teller = Teller()
    with trio.move_on_after(2.5 * BEAT_S):
        await teller.beat("waiting for MLflow")
    assert capsys.readouterr().err.splitlines() == ["waiting for MLflow, 5 s since the last line"] * 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(teller.beat, "waiting for MLflow")
        for number in range(10):
            teller.say(f"page {number}")
            await trio.sleep(BEAT_S / 2)
        nursery.cancel_scope.cancel()
    assert "waiting" not in capsys.readouterr().err
