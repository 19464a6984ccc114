"""Reads the walks of CONTRIBUTING.md and says which of their steps are not in the code.

A walk is a table below a heading: the first column says how a file is joined to the file above it, the second
names the file. `tests/test_walks.py` holds every step true, and shows that wrong steps are noticed. Nothing
here imports the product: it is read as text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import attrs

from tests.house import Tree

#: A row: the join, the file, and a description.
_ROW = re.compile(r"^\| (?P<join>[^|]*)\| `(?P<path>[\w/]+\.py)` \| (?P<words>[^|]+) \|$")
_HEADING = re.compile(r"^### (One .+)$")
_MESSAGE = re.compile(r"^`(?P<name>\w+)` in `(?P<path>[\w/]+\.py)`$")
_CONNECTOR = re.compile(r"^`(?P<path>[\w/]+\.py)`$")


@attrs.frozen
class Step:
    """A file of a walk, and how it is joined to the file above it; the first is joined to none."""

    join: str
    path: str


def walks(text: str) -> dict[str, list[Step]]:
    """Each walk by its heading."""
    steps: dict[str, list[Step]] = {}
    heading: str | None = None
    for line in text.splitlines():
        if line.startswith("#"):
            title = _HEADING.match(line)
            heading = title and title[1]
        elif heading is not None and (row := _ROW.match(line)):
            steps.setdefault(heading, []).append(Step(row["join"].strip(), row["path"]))
    return steps


@attrs.frozen(slots=False)
class Code:
    """What imports what in a tree; each file is read once."""

    tree: Tree

    @cached_property
    def names(self) -> dict[str, dict[str, set[str]]]:
        """By file: the files of ours that it imports anywhere, each with the names taken from it."""
        paths = {
            path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
            for path in self.tree.modules
        }
        names: dict[str, dict[str, set[str]]] = {path: {} for path in self.tree.modules}
        for path, module in self.tree.modules.items():
            for source, name in _imports(module):
                if f"{source}.{name}" in paths:
                    names[path].setdefault(paths[f"{source}.{name}"], set()).add(name)
                elif source in paths:
                    names[path].setdefault(paths[source], set()).add(name)
        return names

    def faults(self, steps: Sequence[Step]) -> list[str]:
        """What of a walk is not so: files that do not exist, and steps that nothing joins."""
        missing = [f"{step.path} does not exist" for step in steps if step.path not in self.names]
        if missing:
            return missing
        return [
            f"{above.path} and {step.path} are not joined by {step.join or 'anything'}"
            for above, step in pairwise(steps)
            if not self._joined(above.path, step)
        ]

    def _joined(self, above: str, step: Step) -> bool:
        if step.join == "→":
            return step.path in self.names[above]
        if step.join == "←":
            return above in self.names[step.path]
        if connector := _CONNECTOR.match(step.join):
            return {above, step.path} <= self.names.get(connector["path"], {}).keys()
        if message := _MESSAGE.match(step.join):
            home, name = message["path"], message["name"]
            ends = [self.names[path].get(home, set()) for path in (above, step.path)]
            return (
                home in self.names
                and name in self._classes(home)
                and all(ends)
                and name in set().union(*ends)
            )
        return False

    def _classes(self, path: str) -> set[str]:
        return {node.name for node in self.tree.modules[path].body if isinstance(node, ast.ClassDef)}


def _imports(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
