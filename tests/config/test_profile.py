"""The profile: it changes defaults where it is asked for, never what somebody has set."""

from __future__ import annotations

import os

import pytest

from protocol.memory import usable_memory_bytes
from svc.config.profile import SMALL, with_profile
from svc.config.table import BadSetting, read_settings, setting_rows

MIB = 1024 * 1024


def test_only_who_asks_for_it_has_other_defaults_than_the_contract() -> None:
    for env in ({}, {"SVC_PROFILE": " "}, {"SVC_PROFILE": "standard"}):
        assert with_profile(env) == env
        settings = read_settings(env)
        assert not settings.small
        assert (settings.max_body_bytes, settings.spool_max_bytes) == (64 * MIB, 128 * MIB)


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
    with pytest.raises(BadSetting, match="SVC_PROFILE is 'tiny'; expected one of standard, small"):
        read_settings({"SVC_PROFILE": "tiny"})


def test_memory_is_a_sane_number_of_bytes() -> None:
    assert 64 * MIB < usable_memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
