"""What agents are told of detectors: those that run here and in this project, by the table of detectors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from svc.domain.detect.detectors.table import DETECTORS
from svc.front.mcp import arguments, handlers
from svc.front.mcp.reads import Reads
from svc.front.mcp.texts import DESCRIPTIONS, instructions
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.postgres.database import Database
from svc.store.reads.questions.query import QueryStore
from tests.store.detection.counting.test_tallying import begin, settle, story, tally_all, write

ALWAYS = [name for name, detector in DETECTORS.items() if detector.needs is None]


@pytest.fixture
async def project(store: Database) -> Database:
    await begin(store)
    return store


async def watching(store: Database, installed: frozenset[str] = frozenset()) -> dict[str, Any]:
    reads = Reads.of(store, QueryStore(store), lambda: datetime.now(UTC), installed)
    found: dict[str, Any] = (await handlers.get_project(reads, 1, arguments.GetProject()))["watching"]
    return found


async def test_detectors_that_need_what_is_not_here_do_not_watch(project: Database) -> None:
    assert (await watching(project))["enabled_classifiers"] == ALWAYS
    assert "frustration" not in ALWAYS
    # Nor does an encoder make one run that is only a name.
    assert (await watching(project, frozenset({"encoder"})))["enabled_classifiers"] == list(DETECTORS)


async def test_a_detector_that_is_switched_off_does_not_watch(project: Database) -> None:
    settings = DetectorSettingStore(project)
    await settings.set_enabled(1, "tool_error", False, "ann")
    found = (await watching(project))["enabled_classifiers"]
    assert found == [name for name in ALWAYS if name != "tool_error"]


async def test_call_sites_are_swept_once_their_traces_are_counted(project: Database) -> None:
    await write(project, *story(1))
    assert (await watching(project))["call_sites_swept"] == 0
    await settle(project)
    await tally_all(project)
    # The agent's and the model's.
    assert (await watching(project))["call_sites_swept"] == 2


def test_agents_are_told_which_detectors_there_are() -> None:
    told = instructions(["get_project"])
    for name in DETECTORS:
        assert name in told
        assert name in DESCRIPTIONS["list_findings"]
    assert "get_project" in DESCRIPTIONS["list_cases"]
    assert "No detector runs" not in told + " ".join(DESCRIPTIONS.values())


async def test_the_project_says_what_is_broken_before_there_is_a_baseline(project: Database) -> None:
    reads = Reads.of(project, QueryStore(project), lambda: datetime.now(UTC))
    assert (await handlers.get_project(reads, 1, arguments.GetProject()))["first_look"] is None
    await write(project, *story(1))
    await settle(project)
    answer: dict[str, Any] = await handlers.get_project(reads, 1, arguments.GetProject())
    assert answer["first_look"]["traces"] == answer["counts"]["traces"]
    assert {"what", "proof", "action", "examples"} <= answer["first_look"]["facts"][0].keys()
