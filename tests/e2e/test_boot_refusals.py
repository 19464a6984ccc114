"""A start that cannot be names the variable or the path, and the remedy, before a database is made."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked import ran
from tests.service import TRACE_SVC, environment, free_port

Prepare = Callable[[Path], dict[str, str]]


def folder_for(name: str) -> Prepare:
    def prepare(data: Path) -> dict[str, str]:
        (data / "secrets" / name).mkdir(parents=True)
        (data / "secrets").chmod(0o700)
        return {}

    return prepare


def a_file_as(*parts: str) -> Prepare:
    def prepare(data: Path) -> dict[str, str]:
        path = data.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not a folder")
        return {}

    return prepare


def setting(**settings: str) -> Prepare:
    return lambda _data: settings


@pytest.mark.parametrize(
    ("prepare", "named", "remedy"),
    [
        pytest.param(
            folder_for("secret-key"), "secrets/secret-key is a folder", "set SVC_SECRET_KEY", id="key"
        ),
        pytest.param(
            folder_for("cookie-password"), "secrets/cookie-password is a folder", "Move it", id="cookie"
        ),
        pytest.param(a_file_as("secrets"), "/secrets is a file", "set SVC_DATA_DIR", id="secrets a file"),
        pytest.param(a_file_as(), "SVC_DATA_DIR", "folder", id="data a file"),
        pytest.param(setting(SVC_HTTP_BIND="192.0.2.1:8471"), "SVC_HTTP_BIND", "Set", id="address"),
        pytest.param(setting(SVC_HTTP_BIND="nobody.invalid:80"), "SVC_HTTP_BIND", "name", id="name"),
        pytest.param(setting(SVC_PRICES_FILE="/nowhere.toml"), "SVC_PRICES_FILE", "unset", id="prices"),
        pytest.param(setting(SVC_INGEST_DRAINERS="many"), "SVC_INGEST_DRAINERS", "expected", id="number"),
        pytest.param(setting(SVC_SECRET_KEY="short"), "SVC_SECRET_KEY", "expected", id="short key"),
        pytest.param(setting(SVC_AUTH_DISABLED="true", SITE_DOMAIN="a.example", TLS_MODE="upstream",
                             SVC_SECRET_KEY="A" * 43 + "=", SVC_AUTH_COOKIE_PASSWORD="x" * 40),
                     "SVC_AUTH_DISABLED", "unset", id="disabled"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_is_wrong_and_the_remedy(
    open_folder: Path, prepare: Prepare, named: str, remedy: str
) -> None:
    data = open_folder / "data"
    settings = {"SVC_HTTP_BIND": f"127.0.0.1:{free_port()}", **prepare(data)}
    status, said = refused(data, settings)
    assert status == 1
    assert named in said, said
    assert remedy in said, said
    assert "Traceback" not in said
    assert not (data / "postgres" / "18").exists()


@pytest.mark.parametrize("variable", ["SVC_HTTP_BIND", "SVC_INGEST_OTLP_GRPC_PORT"])
def test_a_taken_port_is_named_before_the_database_starts(open_folder: Path, variable: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = {"SVC_HTTP_BIND": f"127.0.0.1:{free_port()}", "SVC_INGEST_OTLP_TRANSPORT": "BOTH"}
        settings[variable] = f"127.0.0.1:{port}" if variable == "SVC_HTTP_BIND" else str(port)
        status, said = refused(open_folder / "data", settings)
    assert status == 1
    assert f"cannot listen on 127.0.0.1:{port}" in said, said
    assert f"set {variable} to another port" in said
    assert not (open_folder / "data" / "postgres" / "18").exists()


def refused(data: Path, settings: dict[str, str]) -> tuple[int, str]:
    """Exit status and standard error of a start."""
    done = ran([TRACE_SVC, "serve"], env=environment(data, **settings), timeout_s=60)
    return done.returncode, done.stderr
