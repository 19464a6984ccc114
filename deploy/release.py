"""Makes what a release consists of, into `dist/`: `make release`.

A source archive, a wheel for every system, wheels with compiled modules for each Python and machine that can
be compiled for here (`deploy/wheels.py`), the versions that were tested, a bill of materials
(`deploy/bill.py`), the provenance of all that (SLSA), and the checksums, signed where a key is named. Anybody
who has the same commit builds the archive and the universal wheel to the byte, and the others too with the
same compiler and Pythons. Built from the commit, never from the working tree. Uploads nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path

import attrs
from bill import write_bill
from wheels import Target, compiled_wheel, compiler, interpreters, source_archive, targets, universal_wheel

from protocol.release import described

ROOT = Path(__file__).parent.parent
TAGGED = re.compile(r"20\d\d\.([1-9]|1[0-2])\.(0|[1-9]\d*)")
#: What a signature is for: one of ours is no signature of anything else.
NAMESPACE = "trace-svc-release"
MADE = ("trace_svc-*", "trace-svc-*", "SHA256SUMS", "SHA256SUMS.sig", "constraints.txt")


@attrs.frozen
class Source:
    """The commit that a release is made of."""

    commit: str
    version: str
    made_at_s: int

    @property
    def made_at(self) -> datetime:
        """When it was committed."""
        return datetime.fromtimestamp(self.made_at_s, UTC)


def git(*arguments: str) -> bytes:
    """What git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def source(name: str, *, any_commit: bool) -> Source:
    """The commit of this name. Exits where it is no release and none was wanted that is not."""
    commit = git("rev-parse", name).decode().strip()
    version = described(ROOT, commit)
    if version is None:
        raise SystemExit("git cannot name this commit")
    if not any_commit:
        if not TAGGED.fullmatch(version):
            raise SystemExit(
                f"this commit has no tag: it is {version}, and no release.\n"
                "--any-commit builds it all the same (make release ANY_COMMIT=yes)."
            )
        if changed := git("status", "--porcelain", "--untracked-files=no").decode():
            raise SystemExit(f"commit these, or they are in no release:\n{changed.rstrip()}")
    return Source(commit, version, int(git("show", "-s", "--format=%ct", commit)))


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pinned(name: str) -> str:
    """The version of a package in constraints.txt, which the isolated builds keep to."""
    match = re.search(rf"(?mi)^{name}==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert match is not None, name
    return match[1]


def provenance(made_of: Source, parts: list[Path], compiled_for: list[Target]) -> dict[str, object]:
    """What was made, of what, and by which tools: an in-toto statement with a predicate of SLSA."""
    tools = {
        "python": platform.python_version(),
        "pip": installed_version("pip"),
        "build": installed_version("build"),
        "setuptools": pinned("setuptools"),
        "cython": pinned("Cython"),
        **({"compiler": compiler(compiled_for[0])} if compiled_for else {}),
    }
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": part.name, "digest": {"sha256": digest(part)}} for part in parts],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:trace-svc:make-release:1",
                "externalParameters": {"version": made_of.version},
                "internalParameters": {"compiledFor": [target.name for target in compiled_for]},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": made_of.commit}},
                    *(
                        {"name": name, "annotations": {"version": version}}
                        for name, version in sorted(tools.items())
                    ),
                ],
            },
            "runDetails": {
                "builder": {"id": "urn:trace-svc:make-release", "version": tools},
                "metadata": {"startedOn": made_of.made_at.isoformat().replace("+00:00", "Z")},
            },
        },
    }


def signed(sums: Path, key: Path) -> None:
    """Sign the checksums with a key of SSH, which may lie in an agent or in hardware."""
    words = ["ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(sums)]
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    """Write all of it into the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path, nargs="?", default=ROOT / "dist")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--any-commit", action="store_true", help="one without a tag as well: a dev version")
    parser.add_argument("--python", action="append", default=[], help="compile for these only, by path")
    parser.add_argument("--key", type=Path, help="of SSH, signs the checksums; a public key asks the agent")
    arguments = parser.parse_args()
    made_of = source(arguments.commit, any_commit=arguments.any_commit)
    dist: Path = arguments.dist.resolve()
    dist.mkdir(parents=True, exist_ok=True)
    for old in {path for pattern in MADE for path in dist.glob(pattern)}:
        old.unlink()
    version, made_at_s = made_of.version, made_of.made_at_s
    archive = source_archive(git("archive", "--format=tar", made_of.commit), version, made_at_s, dist)
    print(archive.name, flush=True)
    parts = [archive, universal_wheel(archive, version, made_at_s, dist)]
    print(parts[-1].name, flush=True)
    compiled_for = []
    for target in targets(list(interpreters(arguments.python))):
        wheel = compiled_wheel(archive, target, version, made_at_s, dist)
        if wheel is None:
            print(f"nothing could be compiled for {target.name}", file=sys.stderr)
            continue
        compiled_for.append(target)
        parts.append(wheel)
        print(wheel.name, flush=True)
    parts.append(Path(shutil.copyfile(ROOT / "constraints.txt", dist / "constraints.txt")))
    parts.append(dist / f"trace-svc-{version}.cdx.json")
    write_bill(parts[-1], version, made_of.commit, made_of.made_at)
    statement = dist / f"trace-svc-{version}.intoto.json"
    origin = provenance(made_of, parts, compiled_for)
    statement.write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
    parts.append(statement)
    sums = dist / "SHA256SUMS"
    sums.write_text("".join(f"{digest(part)}  {part.name}\n" for part in parts), encoding="utf-8")
    if arguments.key is not None:
        signed(sums, arguments.key)
    print(f"{len(parts)} files with their checksums{' and a signature' if arguments.key else ''} in {dist}")


if __name__ == "__main__":
    main()
