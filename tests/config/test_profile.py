"""The profile: little memory changes defaults, never what somebody has set."""

from __future__ import annotations

import os

import pytest

from protocol.memory import usable_memory_bytes
from svc.config.profile import SMALL, SMALL_MACHINE_BYTES, with_profile
from svc.config.table import BadSetting, read_settings, setting_rows

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("memory_bytes", "profile"),
    [(256 * MIB, "small"), (SMALL_MACHINE_BYTES, "small"), (SMALL_MACHINE_BYTES + 1, "standard")],
)
def test_little_memory_chooses_the_small_profile(memory_bytes: int, profile: str) -> None:
    assert with_profile({}, lambda: memory_bytes)["SVC_PROFILE"] == profile
    assert with_profile({"SVC_PROFILE": " "}, lambda: memory_bytes)["SVC_PROFILE"] == profile
    assert with_profile({"SVC_PROFILE": "small"}, lambda: memory_bytes)["SVC_PROFILE"] == "small"
    assert with_profile({"SVC_PROFILE": "standard"}, lambda: memory_bytes)["SVC_PROFILE"] == "standard"


def test_the_small_profile_changes_defaults_alone() -> None:
    settings = read_settings({"SVC_PROFILE": "small", "SVC_INGEST_DECODERS": "3"})
    assert settings.small
    assert settings.decoders == 3
    assert settings.spool_max_bytes < read_settings({"SVC_PROFILE": "standard"}).spool_max_bytes


def test_each_small_default_is_a_setting_and_a_value_that_it_takes() -> None:
    assert {default.name for default in SMALL} <= {row.name for row in setting_rows()}
    for default in SMALL:
        read_settings({"SVC_PROFILE": "standard", default.name: default.value})


def test_another_profile_is_refused_by_name() -> None:
    with pytest.raises(BadSetting, match="SVC_PROFILE is 'tiny'; expected one of auto, small, standard"):
        read_settings({"SVC_PROFILE": "tiny"})


def test_memory_is_a_sane_number_of_bytes() -> None:
    assert 64 * MIB < usable_memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
