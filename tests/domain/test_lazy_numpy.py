"""numpy is loaded by whoever first needs it, and not by a start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

#: What the main process loads before it is ready, and a decoder.
_LOADED = ["svc.commands.serve, svc.wiring.service", "svc.ingest.decoder"]


def _ran(lines: Sequence[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("modules", _LOADED)
def test_a_start_does_not_load_numpy(modules: str) -> None:
    assert _ran([f"import sys, {modules}", "print('numpy' in sys.modules)"]) == "False"


def test_what_needs_numpy_has_it_whichever_thread_comes_first() -> None:
    assert _ran(
        [
            "from concurrent.futures import ThreadPoolExecutor",
            "from svc.domain.lazy_numpy import np",
            "with ThreadPoolExecutor(8) as pool:",
            "    sums = list(pool.map(lambda n: int(np.arange(n).sum()), range(64)))",
            "import numpy",
            "print(sums == [n * (n - 1) // 2 for n in range(64)], np.ndarray is numpy.ndarray)",
        ]
    ) == ("True True")
