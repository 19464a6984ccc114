"""A path that cannot be used ends a start or a command in two sentences: what is wrong, and what to do.

Each runs as a child under the account that meets the fault; no account of the test's own process changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from svc.front.server.listening import holder
from tests.certificates import mount, pair_for
from tests.examples import first_always
from tests.forked import ran
from tests.service import TRACE_SVC, environment, free_port

NOBODY = 65534
#: Commands that open the data folder.
COMMANDS = (
    ("serve",),
    ("keys", "list"),
    ("retention", "show"),
    ("users", "list"),
    ("backup", "/nowhere/backup"),
    ("doctor",),
)
STARTS = (("serve",), ("doctor",))


def nobody() -> list[str]:
    """Words that run a child as another account that may still read our code, wherever it lies."""
    return _setpriv(f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *_may("dac_read_search"))


def powerless() -> list[str]:
    """Words that run a child as root to whom modes apply as to anybody."""
    return _setpriv("--bounding-set=-all", "--inh-caps=-all")


def _may(capability: str) -> list[str]:
    return [f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}"]


def _setpriv(*options: str) -> list[str]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can act as another account, by setpriv")
    return ["setpriv", *options]


def read_only(folder: Path) -> list[str]:
    """Words that run a child to whom this folder is mounted read-only."""
    mounts = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", mounts, str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("this account may not mount")
    return words


@attrs.frozen
class Case:
    """A data folder that cannot be used: how it comes about, who meets it, what is said of it."""

    name: str
    #: Makes it below a folder of the test; returns the data folder and the words before the command.
    prepare: Callable[[Path], tuple[Path, list[str]]]
    fault: str
    way_out: str


def of_root(room: Path) -> tuple[Path, list[str]]:
    (room / "data").mkdir(mode=0o755)
    return room / "data", nobody()


def below_root(room: Path) -> tuple[Path, list[str]]:
    (room / "of-root").mkdir(mode=0o755)
    return room / "of-root" / "a" / "b", nobody()


def shut(room: Path) -> tuple[Path, list[str]]:
    words = powerless()
    (room / "shut" / "data").mkdir(parents=True)
    (room / "shut").chmod(0o700)
    os.chown(room / "shut", NOBODY, NOBODY)
    return room / "shut" / "data", words


def own_without_writing(room: Path) -> tuple[Path, list[str]]:
    words = nobody()
    (room / "data").mkdir()
    os.chown(room / "data", NOBODY, NOBODY)
    (room / "data").chmod(0o500)
    return room / "data", words


def a_file(room: Path) -> tuple[Path, list[str]]:
    (room / "data").write_text("a letter")
    return room / "data", []


def below_a_file(room: Path) -> tuple[Path, list[str]]:
    (room / "file").write_text("a letter")
    return room / "file" / "data", []


def postgres_a_file(room: Path) -> tuple[Path, list[str]]:
    (room / "data").mkdir()
    (room / "data" / "postgres").write_text("a letter")
    return room / "data", []


def mounted_read_only(room: Path) -> tuple[Path, list[str]]:
    (room / "data").mkdir()
    return room / "data", read_only(room / "data")


OTHER = "set SVC_DATA_DIR to another path"
CASES = (
    Case("of root", of_root, "may not write into {room}/data: it belongs to root and has mode 755", OTHER),
    Case("below root", below_root, "{room}/of-root/a cannot be made: the account ", "Make it for the acc"),
    Case("shut", shut, "may not enter {room}/shut: it belongs to ", "Allow root to enter it, or " + OTHER),
    Case("no mode to write", own_without_writing, "may not write into {room}/data: it belongs to ", OTHER),
    Case("a file", a_file, "{room}/data is a file, and a folder is needed there", OTHER),
    Case("below a file", below_a_file, "{room}/file is a file, and a folder is needed there", OTHER),
    Case("a file in it", postgres_a_file, "{room}/data/postgres is a file", "Move the file to another"),
    Case("read-only", mounted_read_only, "{room}/data is on a file system that is mounted read", "Mount it"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("case", "command"),
    [(case, command) for case in CASES for command in COMMANDS if case is CASES[0] or command == ("serve",)],
    ids=lambda of: of.name if isinstance(of, Case) else " ".join(of),
)
def test_a_data_folder_that_cannot_be_used_is_told_with_the_way_out(
    open_folder: Path, case: Case, command: tuple[str, ...]
) -> None:
    data, words = case.prepare(open_folder)
    status, said = ended([*words, TRACE_SVC, *command], data)
    assert status == 1, said
    assert case.fault.format(room=open_folder) in said, said
    assert case.way_out in said, said
    assert "Traceback" not in said
    assert "remove" not in said
    assert not (data.is_dir() and (data / "postgres" / "18").exists())


@pytest.mark.parametrize("command", STARTS, ids=" ".join)
def test_a_spool_that_cannot_be_written_is_told_before_the_database_starts(
    open_folder: Path, command: tuple[str, ...]
) -> None:
    words, data = nobody(), open_folder / "data"
    (data / "spool").mkdir(parents=True)
    os.chown(data, NOBODY, NOBODY)
    status, said = ended([*words, TRACE_SVC, *command], data, SVC_INGEST_SPOOL_MODE="disk")
    assert status == 1, said
    assert f"may not write into {data}/spool: it belongs to root" in said
    assert OTHER in said
    assert "Traceback" not in said
    assert not (data / "postgres" / "18").exists()


@pytest.mark.parametrize("command", STARTS, ids=" ".join)
@pytest.mark.parametrize("missing", first_always([True, False]), ids=["missing", "unreadable"])
def test_a_certificate_that_cannot_be_read_is_told_with_the_way_out(
    open_folder: Path, command: tuple[str, ...], missing: bool
) -> None:
    words, certs = powerless(), open_folder / "certs"
    certs.mkdir()
    mount(certs, pair_for("traces.example.org"))
    if missing:
        (certs / "tls.key").unlink()
        fault = f"{certs}/tls.key does not exist. Put it there"
    else:
        os.chown(certs / "tls.key", NOBODY, NOBODY)
        (certs / "tls.key").chmod(0o600)
        fault = f"the account root may not read {certs}/tls.key: it belongs to "
    settings = {
        "SITE_DOMAIN": "traces.example.org",
        "TLS_MODE": "owncert",
        "SVC_CERTS_DIR": str(certs),
        "SVC_SECRET_KEY": b64encode(bytes(32)).decode(),
        "SVC_AUTH_COOKIE_PASSWORD": "0123456789abcdef",
        "SVC_HTTPS_BIND": f"127.0.0.1:{free_port()}",
    }
    status, said = ended([*words, TRACE_SVC, *command], open_folder / "data", **settings)
    assert status == 1, said
    assert fault in said, said
    assert "set SVC_CERTS_DIR to another path" in said
    assert "Traceback" not in said


def test_doctor_ends_with_0_where_nothing_is_wrong_and_its_help_says_so(open_folder: Path) -> None:
    status, said = ended([TRACE_SVC, "doctor"], open_folder / "data")
    assert status == 0, said
    assert "FAIL" not in said
    status, said = ended([TRACE_SVC, "doctor", "--help"], open_folder / "data")
    assert "Exit status: 0 if all is well, warnings included; 1 if any line says FAIL." in said
    gone = f"postgresql://x@127.0.0.1:{free_port()}/x"
    status, said = ended([TRACE_SVC, "doctor"], open_folder / "data", SVC_JDBC_URL=gone)
    assert status == 1
    assert "FAIL  database" in said


def test_an_account_without_a_home_is_told_which_variable_to_set() -> None:
    words = ["setpriv", "--reuid=54321", *nobody()[2:], "env", "-u", "HOME", "-u", "SVC_DATA_DIR"]
    status, said = ended([*words, TRACE_SVC, "serve"], Path("/unused"))
    assert status == 1
    assert "this account has no home folder. Set HOME, or set SVC_DATA_DIR to an absolute path" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "command", [("init",), ("init", "sub"), ("backup", "sub"), ("restore", "sub")], ids=" ".join
)
def test_a_current_folder_that_is_gone_is_told(open_folder: Path, command: tuple[str, ...]) -> None:
    status, said = ended([*from_nowhere(open_folder), TRACE_SVC, *command], Path("data"))
    assert status == 1
    assert "The current folder does not exist any more. Change into one that does (cd)" in said
    assert "Traceback" not in said


def test_init_in_a_current_folder_that_is_gone_writes_nothing(open_folder: Path) -> None:
    status, said = ended([*from_nowhere(open_folder), TRACE_SVC, "init"], open_folder / "data")
    assert status == 1
    assert "The current folder does not exist any more" in said
    assert not any(open_folder.iterdir())


def from_nowhere(room: Path) -> list[str]:
    """Words that run a child in a folder that is gone."""
    return ["sh", "-c", 'mkdir "$0" && cd "$0" && rmdir "$0" && exec "$@"', str(room / "gone")]


def test_a_service_needs_no_current_folder(open_folder: Path) -> None:
    env = environment(open_folder / "data", SVC_HTTP_BIND="127.0.0.1:0", SVC_INGEST_DECODERS="1")
    words = [*from_nowhere(open_folder), TRACE_SVC, "serve"]
    with subprocess.Popen(
        words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        # Whoever closed the pipe would break what it still says.
        process.stdout.read()
    assert line.startswith("trace-svc is ready at "), line
    assert process.returncode == 0


@pytest.mark.parametrize("variable", ["SVC_HTTP_BIND", "SVC_INGEST_OTLP_GRPC_PORT"])
def test_whoever_holds_a_port_is_named(open_folder: Path, variable: str) -> None:
    holds = "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
    holds += "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        settings = {"SVC_HTTP_BIND": f"127.0.0.1:{free_port()}", "SVC_INGEST_OTLP_TRANSPORT": "BOTH"}
        settings[variable] = f"127.0.0.1:{port}" if variable == "SVC_HTTP_BIND" else str(port)
        status, said = ended([TRACE_SVC, "serve"], open_folder / "data", **settings)
    assert status == 1
    assert f"cannot listen on 127.0.0.1:{port}: process {program.pid} (python" in said, said
    assert f"Stop it, or set {variable} to another port" in said


def test_nobody_is_named_for_a_port_that_nobody_holds() -> None:
    assert holder(free_port()) == "another program"


def ended(words: list[str], data: Path, **settings: str) -> tuple[int, str]:
    """Exit status of a command, and all that it said."""
    env = environment(data, **{"SVC_HTTP_BIND": f"127.0.0.1:{free_port()}", **settings})
    if words[0] == TRACE_SVC:
        done = ran(words, env=env, timeout_s=60)
    else:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr
