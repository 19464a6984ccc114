"""Builds the source archive of a commit, and the wheels from that archive.

`deploy/release.py` calls it. One wheel runs everywhere, as plain Python. Each Python at hand gets one with
compiled modules for each machine in `MACHINES`, by the C compiler of `ziglang`, which compiles for any of
them and against an old C library. Where that package is missing, the system's own compiler makes one for the
system at hand. Writes into the folder that it is handed and its own temporary ones; knows no checksums.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import attrs
from packaging.specifiers import SpecifierSet

from protocol.compiled import MODULES
from protocol.release import BUILD_VERSION

ROOT = Path(__file__).parent.parent
MACHINES = ("x86_64", "aarch64")
#: The oldest C library that compiled modules run with: Debian 10, RHEL 8, Ubuntu 20.04.
GLIBC = (2, 28)
_SUFFIX = "SETUPTOOLS_EXT_SUFFIX"


@attrs.frozen
class Interpreter:
    """A Python that wheels can be compiled for."""

    path: str
    version: str
    headers: bool

    @property
    def tag(self) -> str:
        """As the name of a wheel has it."""
        return "cp" + self.version.replace(".", "")


@attrs.frozen
class Target:
    """What a wheel is compiled for. Without a machine, for the system at hand by its own compiler."""

    interpreter: Interpreter
    machine: str | None

    @property
    def name(self) -> str:
        """As people read it."""
        return f"Python {self.interpreter.version} on {self.machine or platform.machine()}"

    @property
    def platform(self) -> str | None:
        """The platform's tag."""
        return None if self.machine is None else f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.machine}"

    def env(self) -> dict[str, str]:
        """What makes setuptools compile for it."""
        env = {"SVC_COMPILED_MODULES": "true"}
        if self.machine is None:
            return env
        target = f"{self.machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
        compiler = shlex.join([_zig(), "cc", "-target", target])
        suffix = f".cpython-{self.interpreter.tag[2:]}-{self.machine}-linux-gnu.so"
        # Zig checks for undefined behaviour by itself, and an assertion would name the folder of a header.
        flags = f"{os.environ.get('CFLAGS', '')} -DNDEBUG -fwrapv -fno-sanitize=all"
        env["CFLAGS"] = flags.strip()
        # Named whole, or the interpreter adds the paths that it was built with.
        return {**env, "CC": compiler, "LDSHARED": f"{compiler} -shared", _SUFFIX: suffix}


def _zig() -> str:
    spec = find_spec("ziglang")
    assert spec is not None
    assert spec.origin is not None
    # Not `python -m ziglang`: an isolated build does not see our packages.
    return str(Path(spec.origin).with_name("zig"))


def interpreters(named: list[str]) -> Iterator[Interpreter]:
    """The Pythons that were named, or one of each version that the package supports, where there is one."""
    if named:
        yield from map(_examined, named)
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = SpecifierSet(project["requires-python"])
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for version in (f"3.{minor}" for minor in range(11, 20)):
        if version not in supported:
            continue
        paths = [sys.executable] if version == own else [*_on_path(version), *_of_pyenv(version)]
        usable = [found for found in map(_examined, paths) if found.version == version]
        if usable:
            yield max(usable, key=lambda found: found.headers)
        else:
            print(f"Python {version} is not here: the wheel for every system serves it", file=sys.stderr)


def _on_path(version: str) -> list[str]:
    path = shutil.which(f"python{version}")
    return [path] if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0 else []


def _of_pyenv(version: str) -> list[str]:
    if shutil.which("pyenv") is None:
        return []
    root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
    return [str(path) for path in sorted(Path(root).glob(f"versions/{version}.*/bin/python"))]


def _examined(path: str) -> Interpreter:
    script = (
        "import json, os, sys, sysconfig; print(json.dumps(['%d.%d' % sys.version_info[:2],"
        " os.path.exists(sysconfig.get_path('include') + '/Python.h')]))"
    )
    answer = subprocess.run([path, "-c", script], capture_output=True, text=True, check=True).stdout
    version, headers = json.loads(answer)
    return Interpreter(os.path.abspath(path), version, headers)


def targets(pythons: list[Interpreter]) -> list[Target]:
    """What can be compiled for here."""
    cross = find_spec("ziglang") is not None
    if not cross:
        print(
            "without the package `ziglang` the system's own compiler is taken: "
            f"{platform.machine()} only, and only as old as its C library",
            file=sys.stderr,
        )
    compilable = []
    for interpreter in pythons:
        if interpreter.headers:
            compilable += [Target(interpreter, machine) for machine in (MACHINES if cross else (None,))]
        else:
            print(f"no C headers of {interpreter.path}: no compiled wheel for it", file=sys.stderr)
    return compilable


def compiler(target: Target) -> str:
    """The version of the compiler."""
    words = ["cc", "--version"] if target.machine is None else [_zig(), "version"]
    lines = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
    return lines[0] if target.machine is None and lines else f"zig {lines[0]}" if lines else "none"


def unpacked(archive: bytes, folder: Path) -> None:
    """The files of a tar archive, with the permissions that git keeps and no others."""
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _environment(version: str, made_at_s: int) -> dict[str, str]:
    constraints = str(ROOT / "constraints.txt")
    return {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(made_at_s),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": "",
        BUILD_VERSION: version,
        # The second is what pip from 25.3 on reads.
        "PIP_CONSTRAINT": constraints,
        "PIP_BUILD_CONSTRAINT": constraints,
    }


def source_archive(commit_files: bytes, version: str, made_at_s: int, dist: Path) -> Path:
    """Build the source archive: the same bytes from the same commit."""
    with tempfile.TemporaryDirectory(prefix="trace-svc-release-") as name:
        unpacked(commit_files, Path(name) / "tree")
        subprocess.run(
            [sys.executable, "-m", "build", "--sdist", "--outdir", f"{name}/made", f"{name}/tree"],
            env={**_environment(version, made_at_s), "SVC_COMPILED_MODULES": "false"},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (made,) = Path(name, "made").glob("*.tar.gz")
        path = dist / made.name
        _even(made, path, made_at_s)
    return path


def _even(made: Path, path: Path, made_at_s: int) -> None:
    """Pack an archive anew: setuptools keeps the times, owners and order of the folder that it packed."""
    with (
        tarfile.open(made) as loose,
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=made_at_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as even,
    ):
        for member in sorted(loose.getmembers(), key=lambda member: member.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, made_at_s
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            even.addfile(plain, loose.extractfile(member) if member.isfile() else None)


def universal_wheel(archive: Path, version: str, made_at_s: int, dist: Path) -> Path:
    """Build the wheel that runs everywhere."""
    path = _wheel(archive, sys.executable, {"SVC_COMPILED_MODULES": "false"}, version, made_at_s, dist)
    assert path is not None
    return path


def compiled_wheel(archive: Path, target: Target, version: str, made_at_s: int, dist: Path) -> Path | None:
    """Build the wheel for a target; None where nothing could be compiled."""
    return _wheel(
        archive, target.interpreter.path, target.env(), version, made_at_s, dist, platform=target.platform
    )


def _wheel(
    archive: Path,
    python: str,
    settings: dict[str, str],
    version: str,
    made_at_s: int,
    dist: Path,
    platform: str | None = None,
) -> Path | None:
    with tempfile.TemporaryDirectory(prefix="trace-svc-release-") as name:
        unpacked(gzip.decompress(archive.read_bytes()), Path(name) / "tree")
        (tree,) = Path(name, "tree").iterdir()
        options = [f"--config-settings=--build-option=--plat-name={platform}"] if platform else []
        # Runs in that Python, which needs no pip of its own.
        pip = [sys.executable, "-m", "pip", "--python", python, "wheel", "--quiet", "--no-deps"]
        subprocess.run(
            [*pip, *options, "--wheel-dir", f"{name}/made", "."],
            cwd=tree,
            env={**_environment(version, made_at_s), **settings},
            check=True,
        )
        (made,) = Path(name, "made").glob("*.whl")
        compiled = settings["SVC_COMPILED_MODULES"] == "true"
        twins = [member for member in zipfile.ZipFile(made).namelist() if member.endswith(".so")]
        if compiled and not twins:
            return None
        assert len(twins) == (len(MODULES) if compiled else 0), f"compiled in part only: {twins}"
        return Path(shutil.move(made, dist / made.name))
