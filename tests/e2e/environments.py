"""Environments for other people's clients: pinned packages, installed once under the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from tests.conftest import missing

INSTALL_TIMEOUT_S = 600


def python_with(
    requirements: Path,
    *,
    otherwise: Callable[[str], NoReturn] = missing,
    timeout_s: float = INSTALL_TIMEOUT_S,
) -> Path:
    """A Python with exactly the packages of a requirements file, without looking for further ones."""
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "trace-svc-tests"
    folder = cache / f"{requirements.parent.name}-{requirements.stem}-{digest}"
    python = folder / "bin" / "python"
    with _alone(cache, folder.name):
        if (folder / "complete").exists():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, timeout=120)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # A frozen list is whole; looking for what it needs would take most of the time.
        whole = ["--no-deps"] if "pip freeze" in requirements.read_text() else []
        if (
            made.returncode
            or subprocess.run(
                [*pip, *whole, "-r", requirements], capture_output=True, timeout=timeout_s
            ).returncode
        ):
            otherwise(f"an environment with {requirements.name} (venv and a package registry)")
        (folder / "complete").touch()
    return python


def node_with(
    folder: Path, package: str, *options: str, otherwise: Callable[[str], NoReturn] = missing
) -> str:
    """node, after the packages of a folder's lock file are there; `package` is one of them."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        otherwise("node with npm")
    with _alone(Path(tempfile.gettempdir()), f"trace-svc-npm-{folder.name}"):
        if (folder / "node_modules" / package).exists():
            return node
        done = subprocess.run(
            [npm, "ci", "--silent", *options], cwd=folder, capture_output=True, timeout=INSTALL_TIMEOUT_S
        )
    if done.returncode:
        otherwise(f"the packages of {folder.name}/package-lock.json (npm and a package registry)")
    return node


def java_with(folder: Path, *, otherwise: Callable[[str], NoReturn] = missing) -> str:
    """java, after the jars that a folder's pom.xml names lie under its `target/lib`."""
    maven, java = shutil.which("mvn"), shutil.which("java")
    if maven is None or java is None:
        otherwise("java with Maven")
    command = [maven, "-q", "-B", "-f", str(folder / "pom.xml"), "package"]
    with _alone(Path(tempfile.gettempdir()), f"trace-svc-maven-{folder.name}"):
        done = subprocess.run(command, capture_output=True, timeout=INSTALL_TIMEOUT_S)
    if done.returncode:
        otherwise(f"the jars of {folder.name}/pom.xml (Maven and a package registry)")
    return java


def go_with(folder: Path, *, otherwise: Callable[[str], NoReturn] = missing) -> str:
    """The program that go builds from a folder's module."""
    go = shutil.which("go")
    if go is None:
        otherwise("go")
    program = folder / "target" / folder.name
    with _alone(Path(tempfile.gettempdir()), f"trace-svc-go-{folder.name}"):
        done = subprocess.run(
            [go, "build", "-o", program, "."], cwd=folder, capture_output=True, timeout=INSTALL_TIMEOUT_S
        )
    if done.returncode:
        otherwise(f"the modules of {folder.name}/go.mod (go and a module proxy)")
    return str(program)


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Hold a lock: the workers of one run install one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
