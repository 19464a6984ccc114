"""Laws of remembering what was refused lately."""

from __future__ import annotations

from svc.front.otlp.lately import MINUTES, MOST_CAUSES, RefusedLately


def test_causes_are_counted_for_some_minutes_and_then_forgotten() -> None:
    now_s = 1000.0
    lately = RefusedLately(lambda: now_s)
    for _ in range(3):
        lately.note((401, "unknown key"), "The key is not valid.")
    lately.note((413, "max_spans"), "Too many spans.")
    assert [(one["cause"], one["count"]) for one in lately.told()] == [("unknown key", 3), ("max_spans", 1)]
    now_s += 60 * (MINUTES - 1)
    lately.note((413, "max_spans"), "Too many spans.", 5)
    assert [(one["cause"], one["count"]) for one in lately.told()] == [("max_spans", 6), ("unknown key", 3)]
    now_s += 120
    assert lately.told() == [{"status": 413, "cause": "max_spans", "message": "Too many spans.", "count": 5}]
    now_s += 60 * MINUTES
    assert lately.told() == []


def test_causes_are_bounded_and_room_comes_back() -> None:
    now_s = 0.0
    lately = RefusedLately(lambda: now_s)
    for number in range(10 * MOST_CAUSES):
        lately.note((400, f"c{number}"), "no")
    assert len(lately.told()) == MOST_CAUSES
    now_s += 60 * (MINUTES + 1)
    lately.note((400, "new"), "no")
    assert [one["cause"] for one in lately.told()] == ["new"]
