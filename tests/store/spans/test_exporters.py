"""Counters of exporters through a real PostgreSQL: they add up, whoever writes, and stay few."""

from __future__ import annotations

import json
from datetime import timedelta

import trio

import svc.store.spans.exporters as exporters_module
from svc.domain.exporters.counters import Exporter, Key, SeenSpans
from svc.domain.exporters.renamed_keys import Sightings, note_keys
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.spans.exporters import KEPT_DAYS, ExporterStore
from tests.front.people import replica
from tests.store.spans.test_writing import NOW, PROJECT, fetch

SHOP = Exporter("shop", "opentelemetry python", "1.45", "lib", "2")


def round_of(exporter: Exporter = SHOP, spans: int = 5, days_ago: int = 0) -> dict[Key, SeenSpans]:
    at = NOW - timedelta(days=days_ago)
    return {(PROJECT, at.date(), exporter): SeenSpans(spans=spans, looked=1, last_seen_at=at)}


async def test_rounds_add_up_over_writers_and_days(store: Database) -> None:
    exporters = ExporterStore(store)
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(exporters.add, round_of(), {(PROJECT, "no start time"): 2}, NOW)
    await exporters.add(round_of(days_ago=3), {}, NOW)
    await exporters.add(round_of(days_ago=9), {}, NOW)
    report = await exporters.report(PROJECT, NOW, 7)
    (shop,) = report.exporters
    assert (shop.service, shop.scope_version, shop.spans) == ("shop", "2", 35)
    assert [(row.reason, row.spans) for row in report.rejected] == [("no start time", 12)]
    assert (await exporters.report(PROJECT, NOW, 30)).exporters[0].spans == 40
    assert (await exporters.report(PROJECT + 1, NOW, 30)).exporters == []


async def test_a_day_holds_so_many_exporters_and_counts_the_rest_together(store: Database) -> None:
    exporters = ExporterStore(store)
    many = {}
    for number in range(exporters_module.MOST_EXPORTERS + 50):
        many |= round_of(Exporter(f"s{number}"))
    await exporters.add(many, {}, NOW)
    await exporters.add(round_of(Exporter("one more")), {}, NOW)
    rows = await fetch(store, "select service, seen from exporter_day")
    assert len(rows) == exporters_module.MOST_EXPORTERS + 1
    assert sum(int(SeenSpans.of_json(json.loads(row["seen"]), NOW).spans) for row in rows) == 5 * 351


async def test_old_days_go(store: Database) -> None:
    exporters = ExporterStore(store)
    await exporters.add(round_of(days_ago=KEPT_DAYS + 1), {}, NOW - timedelta(days=KEPT_DAYS + 1))
    assert len(await fetch(store, "select from exporter_day")) == 1
    await exporters.add(round_of(), {(PROJECT, "x"): 1}, NOW)
    assert len(await fetch(store, "select from exporter_day")) == 1


def versions_of_a_rename() -> dict[Key, SeenSpans]:
    """Yesterday one version of a library, today the next one with a key of its own."""
    old, new = Exporter("shop", "otel", "1", "lib", "1"), Exporter("shop", "otel", "1", "lib", "2")
    yesterday = NOW - timedelta(days=1)
    rounds = {}
    for exporter, at, key in (
        (old, yesterday, "gen_ai.usage.input_tokens"),
        (new, NOW, "genai.usage.input_tokens"),
    ):
        sightings: Sightings = {}
        for _ in range(3):
            note_keys(sightings, [key], int(at.timestamp()))
        seen = SeenSpans(spans=3, looked=3, model_calls=3, last_seen_at=at, watched=sightings)
        rounds[PROJECT, at.date(), exporter] = seen
    return rounds


async def test_a_key_that_a_new_version_renamed_is_said_of_that_version(store: Database) -> None:
    exporters = ExporterStore(store)
    await ProjectStore(store).make_default()
    await exporters.add(versions_of_a_rename(), {}, NOW)
    reports = (await exporters.report(PROJECT, NOW, 7, "--org default --project default")).exporters
    said = {report.scope_version: report.advice for report in reports}
    assert "no longer gen_ai.usage.input_tokens" in said["2"][0]
    assert said["2"][0].endswith("trace-svc remap --org default --project default --apply")
    assert not any("no longer" in line for line in said["1"])
    ((org, project, service, rename),) = await exporters.renamed(NOW)
    assert (org, project, service, rename.new) == ("default", "default", "shop", "genai.usage.input_tokens")
    assert await exporters.renamed(NOW + timedelta(days=3)) == []


async def test_the_report_is_read_over_rest_by_those_who_may_view(store: Database) -> None:
    async with replica(store) as api:
        owner = await api.owner()
        path = "/api/orgs/default/projects/default/ingest/doctor"
        day = api.means.now().date()
        key = (1, day, SHOP)
        await ExporterStore(store).add(
            {key: SeenSpans(spans=3, last_seen_at=api.means.now())}, {}, api.means.now()
        )
        answer = await owner.get(path)
        assert answer.status == 200, answer.body
        (shop,) = answer.data["exporters"]
        assert (shop["service"], shop["spans"]) == ("shop", 3)
        assert answer.data["rejected"] == answer.data["dead_lettered"] == []
        assert (await owner.get(path + "?days=0")).status == 400
        assert (await owner.get(path + "?weeks=1")).status == 400
        assert (await api.browser().get(path)).status == 401
        assert (await api.browser(key=await api.token("query")).get(path)).status == 200
        assert (await api.browser(key=await api.token("write")).get(path)).status == 403
