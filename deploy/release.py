"""Makes what a release consists of, into `dist/`: `make release`.

A wheel for every system, one with compiled modules for the system and the Python at hand, a bill of materials
(CycloneDX) of what they install at the versions of constraints.txt, and the checksums of all. Anybody who has
the same commit builds the first to the byte, with the same compiler and Python the second too. Built from the
commit, never from the working tree. Uploads nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from io import BytesIO
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from protocol.release import BUILD_VERSION, described

ROOT = Path(__file__).parent.parent
TAGGED = re.compile(r"20\d\d\.([1-9]|1[0-2])\.(0|[1-9]\d*)")


def git(*arguments: str) -> bytes:
    """What git says."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def unpacked(commit: str, folder: Path) -> None:
    """The files of a commit, with the permissions that it gives them."""
    with tarfile.open(fileobj=BytesIO(git("archive", "--format=tar", commit))) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def wheel(commit: str, version: str, dist: Path, *, isolated: bool, compiled: bool) -> Path:
    """Build a wheel of a commit, which is a version. Its times are the commit's."""
    with tempfile.TemporaryDirectory(prefix="trace-svc-release-") as name:
        unpacked(commit, Path(name))
        env = {
            **os.environ,
            "SOURCE_DATE_EPOCH": git("show", "-s", "--format=%ct", commit).decode().strip(),
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": "",
            BUILD_VERSION: version,
            "SVC_COMPILED_MODULES": "true" if compiled else "false",
            "PIP_CONSTRAINT": str(Path(name) / "constraints.txt"),
        }
        before = set(dist.glob("*.whl"))
        options = [] if isolated else ["--no-build-isolation"]
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"),
                *("--no-deps", *options, "--wheel-dir", str(dist.resolve()), "."),
            ],
            cwd=name,
            env=env,
            check=True,
        )
    found = set(dist.glob("*.whl")) - before
    assert len(found) == 1, f"{dist} held a wheel of this version already"
    return found.pop()


def closure(requirements: list[str]) -> dict[str, Distribution]:
    """What these requirements install here, by name, with all that they need in turn."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        wanted, extra = waiting.pop()
        name = canonicalize_name(wanted.name)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        if name not in found:
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                raise SystemExit(f"{name} is not installed here; run `make release` again") from None
        for text in found[name].requires or []:
            if (
                canonicalize_name(Requirement(text).name) not in found
                or Requirement(text).extras - wanted.extras
            ):
                waiting += [(Requirement(text), one) for one in ("", *sorted(wanted.extras))]
    return found


def bill(version: str, commit: str, made_at: datetime, extras: Sequence[str] = ()) -> dict[str, object]:
    """The bill of materials, in the form of CycloneDX 1.6; `extras` are installed beside what is needed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [part for extra in extras for part in project["optional-dependencies"][extra]]
    parts = closure(project["dependencies"] + wanted)
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{part.version}",
            "name": name,
            "version": part.version,
            "purl": f"pkg:pypi/{name}@{part.version}",
            **licence(part),
        }
        for name, part in sorted(parts.items())
    ]
    own = f"pkg:pypi/trace-svc@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + commit)}",
        "version": 1,
        "metadata": {
            "timestamp": made_at.isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "trace-svc",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in components]}],
    }


def licence(part: Distribution) -> dict[str, object]:
    """What a distribution says of its licence, nothing where it does not."""
    told = part.metadata.json.get("license_expression")
    if told:
        return {"licenses": [{"expression": told}]}
    named = [
        line.rpartition(" :: ")[2]
        for line in part.metadata.get_all("Classifier") or []
        if line.startswith("License :: ")
    ]
    return {"licenses": [{"license": {"name": name}} for name in named]} if named else {}


def write_bill(path: Path, version: str, commit: str, made_at: datetime, extras: Sequence[str] = ()) -> None:
    """Write the bill of materials of what is installed here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill(version, commit, made_at, extras), indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Write the three into the folder, or with `--bill` the bill of this installation alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bill", type=Path, metavar="FILE", help="only this, without git: for the image")
    parser.add_argument("--version", default="unreleased", help="with --bill")
    parser.add_argument("--extra", action="append", default=[], help="with --bill: installed as well")
    parser.add_argument("dist", type=Path, nargs="?", default=ROOT / "dist")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--no-isolation", action="store_true", help="build with what is installed here")
    arguments = parser.parse_args()
    if arguments.bill is not None:
        at = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
        write_bill(arguments.bill, arguments.version, arguments.commit, at, arguments.extra)
        return
    dist: Path = arguments.dist
    commit = git("rev-parse", arguments.commit).decode().strip()
    version = described(ROOT, commit)
    if version is None:
        raise SystemExit("git cannot name this commit")
    if not TAGGED.fullmatch(version):
        print(f"this commit has no tag: what is built is {version}, and no release", file=sys.stderr)
    dist.mkdir(parents=True, exist_ok=True)
    for old in [*dist.glob("trace_svc-*.whl"), *dist.glob("trace-svc-*.cdx.json"), *dist.glob("SHA256SUMS")]:
        old.unlink()
    made_at = datetime.fromtimestamp(int(git("show", "-s", "--format=%ct", commit)), UTC)
    isolated = not arguments.no_isolation
    parts = [wheel(commit, version, dist, isolated=isolated, compiled=False)]
    compiled = wheel(commit, version, dist, isolated=isolated, compiled=True)
    if any(name.endswith(".so") for name in zipfile.ZipFile(compiled).namelist()):
        parts.append(compiled)
    else:
        compiled.unlink()
        print("nothing could be compiled here: one wheel, for every system", file=sys.stderr)
    parts.append(dist / f"trace-svc-{version}.cdx.json")
    write_bill(parts[-1], version, commit, made_at)
    sums = [f"{hashlib.sha256(part.read_bytes()).hexdigest()}  {part.name}\n" for part in parts]
    (dist / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    print("".join(sums), end="")


if __name__ == "__main__":
    main()
