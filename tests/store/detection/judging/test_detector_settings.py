"""What people set of detectors: whole whatever is stored, within bounds, audited, and of one project."""

from __future__ import annotations

import msgspec
import pytest

from svc.domain.detect.detectors.table import DETECTORS
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.postgres.database import Database
from tests.store.detection.detecting import execute
from tests.store.spans.test_writing import fetch


@pytest.fixture
async def settings(store: Database) -> DetectorSettingStore:
    project = await ProjectStore(store).make_default()
    assert project is not None
    assert project.id == 1
    return DetectorSettingStore(store)


async def test_a_project_that_set_nothing_has_every_detector_at_its_defaults(
    settings: DetectorSettingStore,
) -> None:
    found = await settings.of(1)
    assert found.keys() == DETECTORS.keys()
    for name, setting in found.items():
        assert (setting.enabled, setting.mode) == (True, "discovery")
        assert setting.tuning == {key: one.default for key, one in DETECTORS[name].tuning.items()}


async def test_what_is_set_holds_for_one_detector_of_one_project(settings: DetectorSettingStore) -> None:
    assert not (await settings.set_enabled(1, "tool_error", False, "ann")).enabled
    assert (await settings.set_mode(1, "tool_error", "tracking", "ann")).mode == "tracking"
    assert (await settings.set_tuning(1, "tool_error", {"rise": 3.0}, "ann")).tuning == {"rise": 3.0}
    ours, theirs = await settings.of(1), await settings.of(2)
    setting = ours["tool_error"]
    assert (setting.enabled, setting.mode, setting.tuning) == (False, "tracking", {"rise": 3.0})
    others = {name: one for name, one in ours.items() if name != "tool_error"}
    assert others == {name: one for name, one in theirs.items() if name != "tool_error"}
    assert theirs["tool_error"].enabled
    # What is not named again has its default again.
    assert (await settings.set_tuning(1, "tool_error", {}, "ann")).tuning == {"rise": 2.0}


async def test_a_tuning_outside_its_bounds_is_brought_inside(
    store: Database, settings: DetectorSettingStore
) -> None:
    rise = DETECTORS["tool_error"].tuning["rise"]
    for given, kept in ((1e9, rise.high), (-1.0, rise.low)):
        assert (await settings.set_tuning(1, "tool_error", {"rise": given}, "ann")).tuning["rise"] == kept
    # So is what a release with wider bounds, and with other names, has stored.
    await execute(
        store,
        """update detector_setting set tuning = '{"rise": 1000, "gone": 5}'::jsonb where project_id = 1""",
    )
    assert (await settings.of(1))["tool_error"].tuning == {"rise": rise.high}


async def test_each_change_is_audited_in_its_transaction(
    store: Database, settings: DetectorSettingStore
) -> None:
    await settings.set_enabled(1, "cut_output", False, "ann")
    await settings.set_mode(1, "cut_output", "tracking", "ann")
    await settings.set_tuning(1, "cut_output", {"rise": 99.0}, "bob")
    rows = await fetch(
        store, "select action, actor, subject_kind, subject_id, details from audit_row order by id"
    )
    assert [(*tuple(row)[:4], msgspec.json.decode(row["details"])) for row in rows] == [
        ("detector.update", "ann", "detector", "cut_output", {"enabled": False}),
        ("detector.update", "ann", "detector", "cut_output", {"mode": "tracking"}),
        ("detector.update", "bob", "detector", "cut_output", {"tuning": {"rise": 10.0}}),
    ]
    with pytest.raises(KeyError):
        await settings.set_enabled(1, "no_such", False, "ann")
