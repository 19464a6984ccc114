"""The source of a module that may run compiled: what a compiled one remembers cannot be looked at."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from protocol.compiled import sources


def plain(module: ModuleType) -> Any:
    """A second copy of the module, run from its source."""
    spec = spec_from_file_location(f"{module.__name__}_of_tests", sources(module.__name__)[0])
    assert spec is not None
    assert spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy
