"""Whoever starts, fills or asks beside a service of another data folder learns of it, and which one it is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import ran
from tests.service import TRACE_SVC, Service, copy_made, environment, running


def beside(service: Service, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command at the address of a service, with a data folder of its own."""
    return ran(
        [TRACE_SVC, *arguments],
        env=environment(folder, SVC_HTTP_BIND=f"127.0.0.1:{service.port}"),
        timeout_s=90,
    )


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running(as_users_do=True) as alone:
        yield alone


@pytest.fixture
def other(open_folder: Path) -> Path:
    """A data folder that a service has used before."""
    folder = open_folder / "other"
    copy_made(folder)
    return folder


def test_a_start_names_the_folder_of_the_service_that_is_there(service: Service, other: Path) -> None:
    done = beside(service, other, "serve")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"uses another data folder, {service.data_dir}; here SVC_DATA_DIR is {other}" in done.stderr


def test_a_start_on_the_same_folder_is_refused_as_before(service: Service) -> None:
    done = beside(service, service.data_dir, "serve")
    assert done.returncode == 1
    assert f"process {service.process.pid} (trace-svc) does already" in done.stderr
    assert "another data folder" not in done.stderr


def test_the_demo_sends_nothing_to_a_service_of_another_folder(service: Service, other: Path) -> None:
    done = beside(service, other, "demo")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"uses another data folder, {service.data_dir}" in done.stderr
    # By an address that is typed nobody looks for the process; the refused key says the same.
    done = beside(service, other, "demo", "--url", service.url)
    assert done.returncode == 1
    assert f"the service at {service.url} rejects a key that this command just created" in done.stderr


def test_a_question_is_answered_from_its_own_folder_with_a_note(service: Service, other: Path) -> None:
    done = beside(service, other, "ask", "count", "--json")
    assert done.returncode == 0
    assert done.stderr.startswith(f"note: the service at {service.url} uses another data folder")
    assert '"count": 0' in done.stdout


@pytest.mark.parametrize("words", ["keys list", "erase --user mara --dry-run", "retention show"])
def test_a_command_that_opens_the_database_of_another_folder_says_so(
    service: Service, other: Path, words: str
) -> None:
    done = beside(service, other, *words.split())
    assert done.returncode == 0
    assert done.stderr.startswith(f"note: the service at {service.url} uses another data folder")
    assert f"here SVC_DATA_DIR is {other}, and this command uses that" in done.stderr


def test_nothing_is_said_beside_a_service_of_the_same_folder(service: Service) -> None:
    done = beside(service, service.data_dir, "ask", "count")
    assert (done.returncode, done.stderr) == (0, "")
