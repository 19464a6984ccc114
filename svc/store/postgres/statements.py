"""A text of SQL taken apart into its statements.

Called by the steps of the schema that are done statement by statement, and by their rehearsal. Knows quotes,
dollar quotes and comments, and nothing else of SQL.
"""

from __future__ import annotations

import re
from typing import Final

_PIECE: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(\$\w*\$).*?\1|;|[^-/'\"$;]+|.", re.DOTALL
)


def statements(sql: str) -> list[str]:
    """Its statements, in order, without comments between words and without the semicolon."""
    pieces, statement = [], ""
    for match in _PIECE.finditer(sql):
        piece = match[0]
        if piece == ";":
            pieces.append(statement.strip())
            statement = ""
        else:
            statement += " " if piece.startswith(("--", "/*")) else piece
    return [text for text in (*pieces, statement.strip()) if text]
