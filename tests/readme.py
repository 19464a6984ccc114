"""Renews what the README takes from the code: `python -m tests.readme`."""

from __future__ import annotations

import re
from pathlib import Path

from svc import config

README = Path(__file__).parent.parent / "README.md"


def main() -> None:
    """Write the settings table between its two marks."""
    text = README.read_text(encoding="utf-8")
    table = f"<!-- settings -->\n{config.markdown_table()}\n<!-- /settings -->"
    renewed = re.sub(r"<!-- settings -->.*<!-- /settings -->", lambda _: table, text, flags=re.DOTALL)
    README.write_text(renewed, encoding="utf-8")


if __name__ == "__main__":
    main()
