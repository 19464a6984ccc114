"""A stranger's first minute: a fresh clone, `make run`, the lines that a first start leaves, Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.conftest import missing
from tests.service import environment, stop_postgres, until

pytestmark = [pytest.mark.alone, pytest.mark.release]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("compiler", [False, True])
def test_make_run_on_a_fresh_clone_ends_in_an_address_and_ready_keys(
    open_folder: Path, compiler: bool
) -> None:
    clone, data = open_folder / "clone", open_folder / "data"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=60)
    # A fresh machine has no compiler, and nothing asks for one.
    if compiler and shutil.which("cc") is None:
        missing("a C compiler")
    env = environment(data, SVC_HTTP_BIND="127.0.0.1:0")
    env |= {"CFLAGS": "-O0"} if compiler else {"CC": str(open_folder / "none")}
    with (open_folder / "out").open("w+") as out:
        process = subprocess.Popen(
            ["make", "run"], cwd=clone, env=env, stdout=out, stderr=out, start_new_session=True
        )
        try:
            until(lambda: "first start" in _text(out.name) or process.poll() is not None, timeout_s=600)
            said = _text(out.name)
            # It tells from the first line on what it is at, and compiles when it serves.
            assert said.startswith("1/3 environment\n2/3 packages\n2/3 packages, ")
            assert said.index("3/3 starting") < said.index("trace-svc is ready")
            assert "compiled modules" not in said[: said.index("trace-svc is ready")]
            match = re.search(r"trace-svc is ready at (http://127\.0\.0\.1:\d+)", said)
            assert match is not None, said
            # Without a terminal the keys are not printed.
            greeting = (data / "first-keys").read_text(encoding="utf-8")
            lines = [line for line in greeting.splitlines() if re.match(r"  (export|curl|sleep) ", line)]
            done = subprocess.run(
                ["bash", "-euc", "\n".join(lines)], capture_output=True, text=True, timeout=30, check=True
            )
            assert done.stdout == '{}{"ok":true,"data":{"count":1}}'
            assert httpx2.get(f"{match[1]}/actuator/health").json()["status"] == "UP"
            if compiler:
                # Taken up without a restart.
                until(lambda: "new decoder processes are ready" in _text(out.name), timeout_s=600)
                assert httpx2.get(f"{match[1]}/actuator/health").json()["status"] == "UP"
            # As a terminal does it: the whole group hears Ctrl-C, make as well.
            os.killpg(process.pid, signal.SIGINT)
            process.wait(40)
            assert re.search(r"event=stopped$", _text(out.name), re.MULTILINE)
        finally:
            # Whatever is left of the group: make, the service, what compiles beside it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            stop_postgres(data)


def _text(name: str) -> str:
    return Path(name).read_text(encoding="utf-8")
