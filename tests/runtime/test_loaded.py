"""What only some work needs is not loaded by a process before it does that work."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Libraries that cost megabytes: for terminals with colours, for JSON Schemas, for columns of numbers.
_COLOURS = ("rich", "pygments")
_SCHEMAS = ("jsonschema_rs",)
_NUMBERS = ("numpy",)


@pytest.mark.parametrize(
    ("modules", "unneeded"),
    [
        ("svc.runtime.logging, svc.commands.serve, svc.serve", (*_COLOURS, *_SCHEMAS)),
        ("svc.ingest.decoder", (*_COLOURS, *_SCHEMAS, *_NUMBERS)),
        ("svc.detecting.serving", (*_COLOURS, *_SCHEMAS)),
    ],
)
def test_a_process_loads_nothing_large_that_it_may_never_need(
    modules: str, unneeded: tuple[str, ...]
) -> None:
    code = f"import sys, {modules}; print(sorted(set(sys.modules) & {set(unneeded)!r}))"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
