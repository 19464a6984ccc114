"""The question of a kept chart as it is stored: what stands behind `?` in an address of Explore.

Explore writes its questions by it, and so does the REST API, so that one question is one text. Pure.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import attrs


@attrs.frozen
class KeptQuestion:
    """Its parts. `line` is what narrows it, as Explore has it; without instants it covers the page's days."""

    dataset: str = ""
    line: str = ""
    field: str = ""
    measure: str = ""
    by: str = ""
    first: str = ""
    end: str = ""

    @classmethod
    def read(cls, text: str) -> KeptQuestion:
        """The parts of a stored text."""
        parameters = dict(parse_qsl(text))
        return cls(
            *(parameters.get(name, "") for name in ("dataset", "q", "field", "measure", "by", "from", "to"))
        )

    @property
    def text(self) -> str:
        """As it is stored; a part that is blank is left out."""
        parts = {
            "dataset": self.dataset,
            "q": self.line,
            "field": self.field,
            "measure": self.measure,
            "by": self.by,
            "from": self.first,
            "to": self.end,
        }
        return urlencode({name: value for name, value in parts.items() if value})
