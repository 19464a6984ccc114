"""A Python for ARM on a machine of another kind: Debian's own, run by an emulator of single programs.

Owns: which Debian has it, where it lies, how it is called. The tests of a release call it. Says aloud what is
missing. What it runs may start no program for ARM: nothing is registered with the kernel.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import missing

ROOT = Path(__file__).parents[2]

#: Which release of Debian has this Python.
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}


def python_for_arm() -> list[str]:
    """The command of a Python of the present version. Skips, or fails in CI, where there is none."""
    if platform.machine() == "aarch64":
        pytest.skip("this machine is ARM: the other tests run its wheel")
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if (suite := SUITES.get(sys.version_info[:2])) is None:
        pytest.skip(f"no Debian has {name} for ARM")
    if (emulator := shutil.which("qemu-aarch64")) is None:
        missing("qemu-aarch64 (Debian's qemu-user)")
    folder = Path(f"/var/tmp/trace-svc-arm-{name}")
    script = ROOT / "tests" / "deploy" / "arm.sh"
    made = subprocess.run([script, folder, suite], capture_output=True, text=True, timeout=600)
    if made.returncode:
        missing(f"a Python for ARM ({script.name}: {(made.stdout + made.stderr).strip()[-300:]})")
    return [emulator, "-L", str(folder), str(folder / "usr" / "bin" / name), "-P"]


def printed(python: list[str], installation: Path, words: list[str], given: bytes = b"") -> bytes:
    """What a Python prints that imports what is installed in a folder, and the tests."""
    tests = installation / "only" / "tests"
    tests.parent.mkdir(exist_ok=True)
    if not tests.exists():
        tests.symlink_to(ROOT / "tests")
    env = {
        "PYTHONPATH": f"{installation}:{tests.parent}",
        "PYTHONHASHSEED": "0",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [*python, *words], env=env, cwd=installation, input=given, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
