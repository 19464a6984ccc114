"""A release: the same bytes from the same commit, sums and materials that fit, installed by anybody.

Installing reads the package index, as whoever installs it does.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import httpx2
import pytest

from protocol.compiled import MODULES
from svc.store.postgres.migrate import migrations
from tests.conftest import missing
from tests.e2e.arm import printed, python_for_arm
from tests.ingest import decoding
from tests.ingest.bodies import every_dialect
from tests.service import PLAIN, running
from tests.wire import request, span

ROOT = Path(__file__).parents[2]

PAGE = (ROOT / "deploy" / "install.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.alone, pytest.mark.release]


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    ).stdout.strip()


def release(
    dist: Path, *options: str, clone: Path = ROOT, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """`make release` of the present commit, for one Python alone."""
    return subprocess.run(
        [python, "deploy/release.py", *options, "--python", python, str(dist)],
        cwd=clone,
        # What is made is the same however well it is compiled, and made in a third of the time.
        env={**os.environ, "CFLAGS": "-O0"},
        capture_output=True,
        text=True,
        timeout=900,
    )


def released(dist: Path, *options: str, clone: Path = ROOT, python: str = sys.executable) -> Path:
    """The folder of a release."""
    done = release(dist, "--any-commit", *options, clone=clone, python=python)
    assert done.returncode == 0, done.stderr
    return dist


def uv() -> str:
    """The program, which the extra brings."""
    if find_spec("uv") is None:
        missing("the extra `release`: make .venv/.release")
    from uv import find_uv_bin

    return str(find_uv_bin())


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key that signs releases."""
    path = tmp_path_factory.mktemp("key") / "release"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", str(path)]
    subprocess.run(words, check=True, timeout=60)
    return path


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Path:
    return released(tmp_path_factory.mktemp("dist"), "--key", str(key))


@pytest.fixture
def wheel(dist: Path) -> Path:
    """The one for every system."""
    (wheel,) = dist.glob("*-py3-none-any.whl")
    return wheel


@pytest.fixture
def compiled_wheels(dist: Path) -> dict[str, Path]:
    """Those for this Python, by machine."""
    if find_spec("ziglang") is None:
        missing("the extra `release`: make .venv/.release")
    wheels = {path.stem.split("manylinux_2_28_")[1]: path for path in dist.glob("*-cp3*.whl")}
    assert wheels.keys() == {"x86_64", "aarch64"}
    return wheels


@pytest.fixture
def compiled_wheel(compiled_wheels: dict[str, Path]) -> Path:
    """The one for this system."""
    return compiled_wheels[platform.machine()]


def test_a_commit_without_a_tag_is_no_release_unless_one_asks_for_it(tmp_path: Path) -> None:
    if re.fullmatch(r"v20[\d.]+", git("describe", "--tags", "--always")):
        pytest.skip("this commit is tagged")
    done = release(tmp_path)
    assert done.returncode != 0
    assert "this commit has no tag" in done.stderr
    assert "--any-commit" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_same_commit_makes_the_same_bytes_in_a_clone_that_uv_has_set_up(
    dist: Path, key: Path, tmp_path: Path
) -> None:
    clone, programs = tmp_path / "clone", tmp_path / "programs"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=60)
    programs.mkdir()
    (programs / "uv").symlink_to(uv())
    base = Path(sys.executable).resolve()
    made = subprocess.run(
        ["make", ".venv/.release", f"PYTHON={base}"],
        cwd=clone,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "CFLAGS": "-O0"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    # How much of it is there cannot be seen while uv fetches.
    assert re.search(r"^2/3 packages, \d+ s so far$", made.stdout, re.MULTILINE)
    python = str(clone / ".venv" / "bin" / "python")
    again = released(tmp_path / "again", "--key", str(key), clone=clone, python=python)
    assert {path.name for path in again.iterdir()} == {path.name for path in dist.iterdir()}
    for path in again.iterdir():
        assert path.read_bytes() == (dist / path.name).read_bytes(), path.name


def verified(dist: Path, key: Path, sums: bytes) -> bool:
    """What the installation page has readers type."""
    signers = key.with_name("allowed_signers")
    signers.write_text(f"release {key.with_name('release.pub').read_text()}")
    words = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "release", "-n", "trace-svc-release"]
    done = subprocess.run(
        [*words, "-s", str(dist / "SHA256SUMS.sig")], input=sums, capture_output=True, timeout=60
    )
    return done.returncode == 0


def test_the_signature_holds_for_these_sums_and_no_others(dist: Path, key: Path) -> None:
    sums = (dist / "SHA256SUMS").read_bytes()
    assert verified(dist, key, sums)
    assert not verified(dist, key, sums.replace(b"0", b"1", 1))


def test_the_provenance_names_the_commit_and_every_file(dist: Path) -> None:
    (path,) = dist.glob("*.intoto.json")
    statement = json.loads(path.read_text())
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    sums = dict(line.split()[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert subjects == {name: digest for name, digest in sums.items() if name != path.name}
    source, *tools = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"]["gitCommit"] == git("rev-parse", "HEAD")
    assert {tool["name"] for tool in tools} == {"python", "pip", "build", "setuptools", "cython", "compiler"}


def test_compiled_wheels_run_where_their_names_say_and_name_no_folder(
    compiled_wheels: dict[str, Path],
) -> None:
    for machine, path in compiled_wheels.items():
        done = subprocess.run(
            [sys.executable, "-m", "auditwheel", "show", str(path)],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
        oldest = re.search(rf'platform tag:\s+"manylinux_2_(\d+)_{machine}"', done.stdout)
        assert oldest is not None, done.stdout
        assert int(oldest[1]) <= 28
        with zipfile.ZipFile(path) as archive:
            twins = [archive.read(name) for name in archive.namelist() if name.endswith(".so")]
        assert len(twins) == len(MODULES)
        for twin in twins:
            # e_machine of ELF.
            assert int.from_bytes(twin[18:20], "little") == {"x86_64": 62, "aarch64": 183}[machine]
            assert not re.search(rb"/(home|root|tmp|var/tmp)/|\.pyenv", twin)


def test_sums_and_materials_fit_what_lies_beside_them(dist: Path, wheel: Path) -> None:
    sums = dict(line.split()[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == {path.name for path in dist.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    for name, digest in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    (path,) = dist.glob("*.cdx.json")
    bill = json.loads(path.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == wheel.name.split("-")[1]
    parts = {part["name"]: part for part in bill["components"]}
    pinned = dict(
        line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    # What is needed and what that needs in turn, and nothing of the tests.
    assert {"asyncpg", "hypercorn", "h11", "cryptography", "cffi"} <= parts.keys()
    assert not {"pytest", "mypy", "ruff", "playwright"} & parts.keys()
    for name, part in parts.items():
        assert pinned[name if name in pinned else name.replace("-", "_")] == part["version"], name


def installed(wheel: Path, target: Path) -> Path:
    """What a wheel holds, in a folder that a process may import from."""
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith(("tests", "deploy", "setup"))]
    assert len([name for name in names if "/migrations/" in name]) == len(migrations())
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--target", str(target), str(wheel)),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return target


def test_of_two_wheels_one_runs_compiled_and_one_everywhere(
    wheel: Path, compiled_wheel: Path, open_folder: Path
) -> None:
    for path, state in (
        (wheel, "nothing is compiled"),
        (compiled_wheel, f"compiled: {len(MODULES)} modules"),
    ):
        target = installed(path, open_folder / path.name)
        answer = subprocess.run(
            [sys.executable, "-m", "svc", "--version"],
            env={"PYTHONPATH": str(target), "PATH": ""},
            cwd=open_folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        assert state in answer


def test_the_wheel_for_arm_runs_there_and_decodes_as_the_one_for_this_machine_does(
    compiled_wheels: dict[str, Path], dist: Path, open_folder: Path
) -> None:
    arm = python_for_arm()
    for machine, wheel in compiled_wheels.items():
        # Of the other packages, too, only what runs where the page says.
        words = [
            "--python-platform",
            f"{machine}-manylinux_2_28",
            "--python-version",
            platform.python_version(),
        ]
        words += ["--only-binary", ":all:", "--constraints", str(dist / "constraints.txt")]
        done = subprocess.run(
            [uv(), "pip", "install", "--quiet", *words, "--target", str(open_folder / machine), str(wheel)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
    target = open_folder / "aarch64"
    assert f"compiled: {len(MODULES)} modules" in printed(arm, target, ["-m", "svc", "--version"]).decode()
    script = (
        "import importlib, platform; from protocol.compiled import MODULES, runs_compiled;"
        "print(platform.machine(), sum(runs_compiled(importlib.import_module(name)) for name in MODULES))"
    )
    assert printed(arm, target, ["-c", script]).decode() == f"aarch64 {len(MODULES)}\n"
    body = BytesIO()
    decoding.send(body, every_dialect())
    words = ["-m", "tests.ingest.decoding"]
    there = printed(arm, target, words, body.getvalue())
    assert b"Rain." in there
    assert there == printed([sys.executable, "-P"], open_folder / "x86_64", words, body.getvalue())


def taught(heading: str) -> list[str]:
    """The commands that the installation page shows under a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return blocks


def typed(block: str, folder: Path, env: Mapping[str, str] = {}) -> str:
    """What commands print, typed in a folder."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env={**os.environ, "PATH": path, "UV_PYTHON": sys.executable, **env},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed_as_taught(
    heading: str,
    files: list[Path],
    folder: Path,
    env: Mapping[str, str] = {},
) -> None:
    """Type the first block of a section, all but its last line, which serves."""
    for path in files:
        shutil.copy2(path, folder)
    block, last = taught(heading)[0].rstrip().rsplit("\n", 1)
    assert last.endswith("trace-svc serve")
    typed(block, folder, env)


def takes_a_span(program: Path) -> None:
    """Serve at a printed address, store a span, show a page with its style."""
    with running(first=True, program=program) as service:
        assert service.send(request(span(name="installed")).SerializeToString()).status_code == 200
        service.wait_for_spans(1)
        page = httpx2.get(service.url, follow_redirects=True, **PLAIN)
        assert page.status_code == 200
        (style, *_) = [part.split('"')[0] for part in page.text.split('href="')[1:] if ".css" in part]
        assert httpx2.get(f"{service.url}{style}", **PLAIN).status_code == 200
        assert os.path.realpath(f"/proc/{service.process.pid}/cwd") != str(ROOT / "svc")
        command = Path(f"/proc/{service.process.pid}/cmdline").read_bytes()
        assert str(program).encode() in command


def test_pip_alone_installs_it_and_it_takes_a_span(dist: Path, wheel: Path, open_folder: Path) -> None:
    installed_as_taught("pip", [wheel, dist / "constraints.txt"], open_folder)
    # As the pages that follow call it.
    printed_path = typed(f"{taught('pip')[1]}command -v trace-svc", open_folder).strip()
    assert printed_path == str(open_folder / "trace-svc" / "bin" / "trace-svc")
    takes_a_span(open_folder / "trace-svc" / "bin" / "trace-svc")


def test_uv_alone_installs_it_as_a_tool_and_it_takes_a_span(
    dist: Path, compiled_wheel: Path, open_folder: Path
) -> None:
    uv()
    env = {"UV_TOOL_DIR": str(open_folder / "tools"), "UV_TOOL_BIN_DIR": str(open_folder / "bin")}
    installed_as_taught("uv", [compiled_wheel, dist / "constraints.txt"], open_folder, env)
    takes_a_span(open_folder / "bin" / "trace-svc")
    once = taught("uv")[-1].removesuffix("serve\n") + "--version"
    assert f"compiled: {len(MODULES)} modules" in typed(once, open_folder, env)


def test_the_page_says_how_to_check_what_was_downloaded(dist: Path, key: Path, tmp_path: Path) -> None:
    for path in dist.iterdir():
        if not path.name.endswith("aarch64.whl"):
            shutil.copy2(path, tmp_path)
    (tmp_path / "allowed_signers").write_text(f"release {key.with_name('release.pub').read_text()}")
    sums, signature = taught("Check what you downloaded")
    assert ": OK" in typed(sums, tmp_path)
    assert "Good" in typed(signature, tmp_path)


def test_the_page_names_what_a_release_consists_of(dist: Path, wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    names = [name.replace("VERSION", version) for name in re.findall(r"^\| `(.*?)`[, |]", PAGE, re.MULTILINE)]
    patterns = [re.escape(name).replace("…", ".*") for name in names]
    for path in dist.iterdir():
        base = path.name.replace("aarch64", "x86_64").removesuffix(".sig")
        assert any(re.fullmatch(pattern, base) for pattern in patterns), path.name
