"""Writes the bill of materials of what is installed here, in the form of CycloneDX 1.6.

`deploy/release.py` writes one into each release, and the image holds one, for which this runs by itself
and without git: `python deploy/bill.py FILE --version V --commit C`. Reads the metadata of installed
packages; asks nobody else.
"""

from __future__ import annotations

import argparse
import json
import os
import tomllib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


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
    """Write the bill of this installation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, metavar="FILE")
    parser.add_argument("--version", default="unreleased")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--extra", action="append", default=[], help="installed as well")
    arguments = parser.parse_args()
    at = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    write_bill(arguments.path, arguments.version, arguments.commit, at, arguments.extra)


if __name__ == "__main__":
    main()
