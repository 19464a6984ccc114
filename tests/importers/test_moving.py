"""Laws of moving in: a page is noted when it is stored, a fault stands alone, a crash loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from protocol.importing import StoredSums
from protocol.operator import OperatorError
from protocol.otlp.limits import DEFAULT_LIMITS
from protocol.storage import Outage, StoreRefused, Written
from svc.domain.intake.batches import StoredSpan, decoder
from svc.domain.pricing.prices import PriceBook
from svc.importers.journal import Journal, MovedSpans, SourceSums, journal
from svc.importers.moving import BY_DATABASE, PATIENCE_S, HistoryMove, window_of
from svc.importers.source import Identity, ImportPage, ImportWindow
from tests.wire import request, span

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
WINDOW = ImportWindow(None, NOW + timedelta(days=1))
PAGES = 4
PAGE_SPANS = 600


@attrs.define
class Pages:
    """A source of a few pages; `refuses` is a span that no database takes."""

    name: str = "pages"
    leaves: tuple[str, ...] = ()
    start: datetime = NOW
    asked: list[str | None] = attrs.field(factory=list)

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        self.asked.append(cursor)
        number = int(cursor or 0)
        start_ns = int(self.start.timestamp()) * 10**9
        spans = [
            span(
                attributes={"session.id": "s"},
                trace_id=(number + 1).to_bytes(16, "big"),
                span_id=(number * PAGE_SPANS + n + 1).to_bytes(8, "big"),
                start_ns=start_ns + n,
                end_ns=start_ns + n + 1000,
            )
            for n in range(PAGE_SPANS)
        ]
        told: dict[Identity, int | None] = {one.trace_id + one.span_id: 2 for one in spans}
        behind = str(number + 1) if number + 1 < PAGES else None
        return ImportPage((("protobuf", request(*spans).SerializeToString()),), behind, told)


@attrs.define
class Store:
    """A store in memory, which may be away or refuse a span."""

    stored: dict[bytes, datetime] = attrs.field(factory=dict)
    groups: list[int] = attrs.field(factory=list)
    away: int = 0
    refuses: bytes = b""
    #: Struck after so many groups.
    strike: Callable[[], object] = lambda: None

    async def write(self, spans: Sequence[StoredSpan], came: Callable[[StoredSpan], datetime]) -> Written:
        self.strike()
        if self.away:
            self.away -= 1
            raise Outage("away")
        if any(one.row.span_id == self.refuses for one in spans):
            raise StoreRefused("no")
        self.groups.append(len(spans))
        new = {one.row.trace_id + one.row.span_id: came(one) for one in spans}
        known = len(new.keys() & self.stored.keys())
        self.stored |= new
        return Written(len(new) - known, known)

    async def found(self, project_id: int, ids: Sequence[Identity], last_trace: bytes) -> StoredSums:
        here = sorted(one for one in ids if one in self.stored)
        traces = {one[:16] for one in here}
        return StoredSums(
            len(here), len(traces - {last_trace}), 2 * len(here), 0, 0, max(traces, default=last_trace)
        )


def move(source: Pages, store: Store | None, **fields: object) -> HistoryMove:
    whole = {"limits": DEFAULT_LIMITS, "expired_before": None, "now": lambda: NOW, "spans_a_s": 0.0}
    return HistoryMove(1, source, decoder(PriceBook()), store, **{**whole, **fields})  # type: ignore[arg-type]


@contextmanager
def kept(folder: Path) -> Iterator[Journal]:
    with journal(folder / "it.sqlite", WINDOW) as found:
        yield found


async def test_every_page_is_stored_in_groups_and_counted_at_the_end(tmp_path: Path) -> None:
    source, store = Pages(), Store()
    with kept(tmp_path) as found:
        moving = move(source, store)
        await moving.run(found, lambda _: None)
        told, here = await moving.compare(found)
    assert source.asked == [None, "1", "2", "3"]
    assert store.groups == [500, 100] * PAGES
    assert told == SourceSums(PAGES, PAGES * PAGE_SPANS, 2 * PAGES * PAGE_SPANS)
    assert (here.spans, here.traces, here.tokens) == (told.spans, told.traces, told.tokens)
    assert found.moved.stored == found.moved.read == PAGES * PAGE_SPANS
    assert min(store.stored.values()) >= NOW


@pytest.mark.parametrize("groups", range(8))
async def test_struck_at_any_group_the_next_run_goes_on_and_stores_each_span_once(
    tmp_path: Path, groups: int
) -> None:
    source, store = Pages(), Store()
    scope = trio.CancelScope()
    store.strike = lambda: scope.cancel() if len(store.groups) == groups else None
    with scope, kept(tmp_path) as found:
        await move(source, store).run(found, lambda _: None)
    assert scope.cancelled_caught
    store.strike = lambda: None
    with kept(tmp_path) as found:
        pages = found.moved.pages
        assert found.resumed == (pages > 0)
        source.asked.clear()
        moving = move(source, store)
        await moving.run(found, lambda _: None)
        told, here = await moving.compare(found)
        assert source.asked[0] == (str(pages) if pages else None)
        assert found.moved.pages == PAGES
    assert (told.spans, here.spans, len(store.stored)) == (PAGES * PAGE_SPANS,) * 3


async def test_where_there_is_no_room_it_ends_and_the_next_run_goes_on(tmp_path: Path) -> None:
    source, store = Pages(), Store()

    async def room() -> None:
        if len(store.groups) == 3:
            raise OperatorError("no room")

    with kept(tmp_path) as found, pytest.raises(OperatorError, match="no room"):
        await move(source, store, room=room).run(found, lambda _: None)
    assert store.groups == [500, 100, 500]
    with kept(tmp_path) as found:
        assert found.moved.pages == 1
        await move(source, store).run(found, lambda _: None)
    assert len(store.stored) == PAGES * PAGE_SPANS


async def test_a_span_that_the_database_refuses_stands_alone(tmp_path: Path) -> None:
    store = Store(refuses=(700).to_bytes(8, "big"))
    with kept(tmp_path) as found:
        await move(Pages(), store).run(found, lambda _: None)
    assert found.moved.refused == {BY_DATABASE: 1}
    assert len(store.stored) == PAGES * PAGE_SPANS - 1


async def test_a_database_that_is_away_is_waited_for_and_given_up_in_the_end(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store = Store(away=20)
    with kept(tmp_path) as found:
        await move(Pages(), store).run(found, lambda _: None)
    assert len(store.stored) == PAGES * PAGE_SPANS
    (tmp_path / "it.sqlite").unlink()
    began_s = trio.current_time()
    with kept(tmp_path) as found, pytest.raises(Outage):
        await move(Pages(), Store(away=10**9)).run(found, lambda _: None)
    assert trio.current_time() - began_s == pytest.approx(PATIENCE_S, abs=5)


async def test_the_speed_is_bounded(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    began_s = trio.current_time()
    with kept(tmp_path) as found:
        await move(Pages(), Store(), spans_a_s=100.0).run(found, lambda _: None)
    assert trio.current_time() - began_s == pytest.approx(PAGES * PAGE_SPANS / 100)


async def test_what_is_too_old_or_outside_is_counted_and_a_look_stores_nothing(tmp_path: Path) -> None:
    store = Store()
    with kept(tmp_path) as found:
        await move(Pages(), store, expired_before=NOW + timedelta(seconds=1)).run(found, lambda _: None)
    assert (found.moved.expired, len(store.stored)) == (PAGES * PAGE_SPANS, 0)
    with journal(tmp_path / "narrow.sqlite", ImportWindow(NOW + timedelta(hours=1), NOW)) as found:
        await move(Pages(), None).run(found, lambda _: None)
        assert found.moved == attrs.evolve(
            MovedSpans(), pages=PAGES, read=PAGES * PAGE_SPANS, outside=PAGES * PAGE_SPANS
        )


def test_a_window_without_an_end_ends_when_the_import_began_and_stays_there(tmp_path: Path) -> None:
    assert window_of(None, None, NOW).high == NOW
    assert window_of(None, NOW + timedelta(days=1), NOW).high == NOW
    for later in (0, 1):
        with journal(tmp_path / "it.sqlite", window_of(None, None, NOW + timedelta(hours=later))) as found:
            assert found.window.high == NOW


def test_two_that_import_the_same_thing_are_not_in_each_others_way(tmp_path: Path) -> None:
    with (
        kept(tmp_path),
        pytest.raises(OperatorError, match="another process is at this very import"),
        kept(tmp_path),
    ):
        pass
    (tmp_path / "broken.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(OperatorError, match="is damaged"), journal(tmp_path / "broken.sqlite", WINDOW):
        pass
