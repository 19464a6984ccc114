"""Lay out templates: `python -m tests.web.layout FILE...`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.web.layout.printing import laid_out


def main(paths: list[str]) -> None:
    """Write each template that is not laid out, and say which."""
    for path in map(Path, paths):
        source = path.read_text(encoding="utf-8")
        if (text := laid_out(source)) != source:
            path.write_text(text, encoding="utf-8")
            print(f"laid out: {path}")


main(sys.argv[1:])
