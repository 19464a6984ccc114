"""Secrets of a plain local start: made once, kept private, never in place of what the operator set."""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from svc.config.checks import boot_warnings
from svc.config.table import (
    PLACEHOLDER_COOKIE_PASSWORD,
    PLACEHOLDER_SECRET_KEY,
    BadSetting,
    Settings,
    read_settings,
)
from svc.secrets.own import kept_here, with_own_secrets
from svc.store.postgres.embedded.cluster import claim_private_folder


def start(folder: Path, **env: str) -> Settings:
    named = {"SVC_DATA_DIR": str(folder), **env}
    return with_own_secrets(read_settings(named), named, claim=claim_private_folder)


def test_a_local_start_makes_private_secrets_once_and_warns_of_no_placeholder(tmp_path: Path) -> None:
    first, second = start(tmp_path / "data"), start(tmp_path / "data")
    assert (first.secret_key, first.cookie_password) == (second.secret_key, second.cookie_password)
    assert boot_warnings(first, {}) == []
    files = sorted((tmp_path / "data" / "secrets").iterdir())
    assert [path.name for path in files] == ["cookie-password", "secret-key"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700


def test_two_installations_have_different_secrets(tmp_path: Path) -> None:
    one, other = start(tmp_path / "one"), start(tmp_path / "other")
    assert one.secret_key != other.secret_key
    assert one.cookie_password != other.cookie_password


def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        forks = [pool.submit(_key_of_a_process, tmp_path / "data") for _ in range(8)]
        assert len({fork.result() for fork in forks}) == 1
    assert len(list((tmp_path / "data" / "secrets").iterdir())) == 2


def _key_of_a_process(folder: Path) -> str:
    import subprocess
    import sys

    code = (
        "import os; from svc.config.table import read_settings;"
        "from svc.secrets.own import with_own_secrets as w;"
        "from svc.store.postgres.embedded.cluster import claim_private_folder as claim;"
        "print(w(read_settings(os.environ), os.environ, claim=claim).secret_key.hex())"
    )
    env = {"PATH": os.environ["PATH"], "SVC_DATA_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_what_the_operator_sets_is_used_and_nothing_is_made_for_it(tmp_path: Path) -> None:
    mine = bytes(range(32))
    settings = start(tmp_path, SVC_SECRET_KEY=b64encode(mine).decode())
    assert settings.secret_key == mine
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["cookie-password"]


def test_a_blank_secret_counts_as_unset(tmp_path: Path) -> None:
    settings = start(tmp_path, SVC_SECRET_KEY="", SVC_AUTH_COOKIE_PASSWORD=" ")
    assert boot_warnings(settings, {}) == []


def test_an_explicit_placeholder_stays_and_is_warned_of(tmp_path: Path) -> None:
    settings = start(
        tmp_path,
        SVC_SECRET_KEY=PLACEHOLDER_SECRET_KEY,
        SVC_AUTH_COOKIE_PASSWORD=PLACEHOLDER_COOKIE_PASSWORD,
    )
    warned = [text.partition(" ")[0] for text in boot_warnings(settings, {})]
    assert warned == ["SVC_SECRET_KEY", "SVC_AUTH_COOKIE_PASSWORD"]


@pytest.mark.parametrize(
    "env",
    [
        {"SITE_DOMAIN": "t.example.org", "TLS_MODE": "upstream"},
        {"DB_HOST": "db.example.org"},
        {"SVC_JDBC_URL": "postgresql://db.example.org/x"},
    ],
)
def test_a_public_or_shared_instance_must_be_told_its_secrets(tmp_path: Path, env: dict[str, str]) -> None:
    settings = start(tmp_path, **env)
    assert settings.cookie_password == PLACEHOLDER_COOKIE_PASSWORD
    assert not (tmp_path / "secrets").exists()


def test_a_damaged_secret_refuses_the_start_and_is_not_shown(tmp_path: Path) -> None:
    start(tmp_path)
    (tmp_path / "secrets" / "secret-key").write_text("mangled-secret")
    with pytest.raises(BadSetting, match="SVC_SECRET_KEY") as refusal:
        start(tmp_path)
    assert "mangled" not in str(refusal.value)


def test_looking_makes_nothing(tmp_path: Path) -> None:
    named = {"SVC_DATA_DIR": str(tmp_path)}
    with_own_secrets(read_settings(named), named)
    assert list(tmp_path.iterdir()) == []
    assert list(kept_here(read_settings(named), named)) == ["SVC_SECRET_KEY", "SVC_AUTH_COOKIE_PASSWORD"]
