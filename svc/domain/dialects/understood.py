"""What each dialect says of which field: the table that the pages for users hold.

`tests.readme` renews it. Nothing at run time asks.
"""

from __future__ import annotations

from svc.domain.dialects import DIALECTS
from svc.domain.dialects.genai import DIALECT as GENAI


def understood() -> dict[str, dict[str, tuple[str, ...]]]:
    """What each dialect, by its title, says of which field, and by which keys, best first.

    A field that no single key says has the word `derived` among its keys. Beside the fields there are
    `messages`, `documents`, `counting` and, where a dialect says the rest in another's keys, `beside`.
    """
    table: dict[str, dict[str, tuple[str, ...]]] = {}
    for dialect in DIALECTS:
        row: dict[str, tuple[str, ...]] = {}
        row |= {field: keys for field, keys in dialect.keys.items()}
        row |= {detail: keys for detail, keys in dialect.details.items()}
        for field in dialect.derives:
            row[field] = (*row.get(field, ()), "derived")
        if dialect.input_messages is not None or dialect.output_messages is not None:
            row["messages"] = ("derived",)
        if dialect.documents is not None:
            row["documents"] = ("derived",)
        if dialect.counting is not None:
            row["counting"] = (dialect.counting,)
        if dialect.beside_genai:
            row["beside"] = (GENAI.title,)
        table[dialect.title] = row
    return table
