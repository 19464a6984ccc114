"""A growing `where` clause with its parameters, and the plain conditions that the read stores share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import attrs

from protocol.text import clean


def readable(q: str) -> str:
    """A searched text as PostgreSQL can take it: U+0000 and lone surrogates are replaced."""
    return clean(q).encode("utf-8", "replace").decode()


def containing(q: str) -> str:
    """The pattern of `ilike` for a text that contains this one; `%`, `_` and `\\` are taken literally."""
    plain = readable(q).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{plain}%"


def by_each(fields: Sequence[str]) -> tuple[str, str, str]:
    """Grouping by each of these columns apart: the name of the one, its value, and the grouping sets."""
    names = " ".join(f"when grouping({name}) = 0 then '{name}'" for name in fields)
    values = " ".join(f"when grouping({name}) = 0 then {name}" for name in fields)
    return f"case {names} else '' end", f"case {values} end", ", ".join(f"({name})" for name in fields)


@attrs.define
class Where:
    """Clauses joined by `and`. The first parameter is always the project."""

    clauses: list[str]
    values: list[Any]

    @classmethod
    def of(cls, project_id: int, alias: str = "") -> Where:
        """The clause that every read starts with."""
        return cls([f"{alias}project_id = $1"], [project_id])

    def copy(self) -> Where:
        """The same clauses and parameters, to which more can be added."""
        return Where(list(self.clauses), list(self.values))

    def value(self, value: Any) -> str:
        """Add a parameter and return its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}"

    def add(self, clause: str) -> None:
        """Add a clause as it stands."""
        self.clauses.append(clause)

    def equal(self, column: str, value: Any) -> None:
        """`column = value`, unless the value is None, which asks for nothing."""
        if value is not None:
            self.add(f"{column} = {self.value(value)}")

    def within(self, column: str, low: datetime | Decimal | None, high: datetime | Decimal | None) -> None:
        """Both bounds inclusive; None is open."""
        if low is not None:
            self.add(f"{column} >= {self.value(low)}")
        if high is not None:
            self.add(f"{column} <= {self.value(high)}")

    def contains(self, columns: Sequence[str], q: str | None) -> None:
        """A case-insensitive substring in any of the columns; `%`, `_` and `\\` are taken literally."""
        if q is None:
            return
        pattern = self.value(containing(q))
        self.add("(" + " or ".join(f"{column} ilike {pattern}" for column in columns) + ")")

    def after(self, columns: Sequence[str], place: Sequence[Any] | None, *, ascending: bool = False) -> None:
        """Rows behind a place in the order of these columns."""
        if place is not None:
            places = ", ".join(self.value(value) for value in place)
            self.add(f"({', '.join(columns)}) {'>' if ascending else '<'} ({places})")

    def sql(self) -> str:
        """The clause."""
        return " and ".join(self.clauses)
