"""One line of `trace-svc doctor`. The files that look make them, `doctor` prints them."""

from __future__ import annotations

import attrs


@attrs.frozen
class Finding:
    """One line: `ok`, `warn` or `FAIL`, what was looked at, and what was seen."""

    verdict: str
    subject: str
    text: str

    def line(self) -> str:
        """The finding as it is printed."""
        return f"{self.verdict:<4}  {self.subject:<10}  {self.text}"
