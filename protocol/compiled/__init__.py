"""Compiled twins of the modules on the hot path, where a C compiler was at hand when the package was built.

Owns: the list of them, where a twin lies, the finder that takes it in place of the source, and `state`, which
the doctor shows. `protocol/__init__.py` and `svc/__init__.py` install the finder before anything else is
imported; `setup.py` builds. Knows other rooms by the names of their files alone.
There is one source: the twin is that file, compiled. Its name holds a digest of it, so a twin of another text
is never taken, and no twin, or one that this system cannot load, is no error: the source runs as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

#: What is worth it (deploy/BENCHMARKS.md, "Compiled modules"). Nothing that waits is here.
MODULES: Final = (
    "protocol.otlp.plain_spans",
    "protocol.text",
    "svc.domain.dialects",
    "svc.domain.dialects.details",
    "svc.domain.dialects.genai",
    "svc.domain.intake.batches",
    "svc.domain.pricing.prices",
    "svc.domain.spans.values",
    "svc.domain.intake.mapping",
    "svc.domain.spans.messages",
    "svc.domain.intake.packing",
    "svc.domain.traces.rollup",
    "svc.domain.detect.detectors.answers",
    "svc.domain.detect.detectors.settled_trace",
    "svc.store.spans.encoding",
)
#: As the settings name it; children of the service inherit it.
SWITCH: Final = "SVC_COMPILED_MODULES"

_FOLDER: Final = Path(__file__).parent
_ROOT: Final = _FOLDER.parent.parent
SUFFIX: Final = EXTENSION_SUFFIXES[0]
_DIGEST_CHARS: Final = 16


def sources(name: str) -> list[Path]:
    """The files that a module is compiled from: its text, and the types of C that it has then."""
    path = _ROOT.joinpath(*name.split("."))
    text = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    types = text.with_suffix(".pxd")
    return [text, types] if types.exists() else [text]


def twin(name: str, suffix: str = SUFFIX) -> str:
    """The file name of the twin that is compiled from a module as it is now; `suffix` is that of a system."""
    digest = sha256(b"\0".join(path.read_bytes() for path in sources(name)))
    return f"{name}-{digest.hexdigest()[:_DIGEST_CHARS]}{suffix}"


class _Twins(MetaPathFinder):
    """Finds twins; of anything else it knows nothing."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in MODULES:
            return None
        file = _FOLDER / twin(name)
        if not file.exists():
            return None
        text = sources(name)[0]
        loader = ExtensionFileLoader(name, str(file))
        inner = [str(text.parent)] if text.name == "__init__.py" else None
        spec = spec_from_file_location(name, file, loader=loader, submodule_search_locations=inner)
        assert spec is not None
        try:
            loader.create_module(spec)
        except ImportError:
            # Built for another system.
            return None
        return spec


def wanted() -> bool:
    """Whether the environment lets twins be taken."""
    return os.environ.get(SWITCH, "").strip().lower() not in ("false", "no", "0")


def use() -> None:
    """Take twins from now on, unless the environment says not to."""
    if wanted() and not any(isinstance(finder, _Twins) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Twins())


def runs_compiled(module: ModuleType) -> bool:
    """Whether an imported module is the twin."""
    return str(module.__file__).endswith(SUFFIX)


def state() -> tuple[bool, str]:
    """Whether a process of this installation runs on twins alone, and a sentence about it."""
    if not wanted():
        return False, f"plain Python: {SWITCH} says so"
    finder = _Twins()
    compiled = sum(finder.find_spec(name, None) is not None for name in MODULES)
    if compiled == len(MODULES):
        return True, f"compiled: {compiled} modules of the hot path"
    if compiled:
        return False, f"compiled in part: {compiled} of {len(MODULES)} modules, the others have changed since"
    if any(_FOLDER.glob("*" + SUFFIX)):
        return False, "plain Python: what is compiled is of other sources, or does not run on this system"
    return False, "plain Python: nothing is compiled, which takes a C compiler at the installation"
