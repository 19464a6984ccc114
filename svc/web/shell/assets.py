"""What pages load: modules, styles, pictures. Read once, compressed once, named by the hash of all of them.

The hash stands in the folder (`/static/{hash}/…`), so every file may be kept for ever. A hash of an earlier
release is answered with what there is now, kept by nobody.

The modules of a page come as one file, put together at the start: on a slow line thirty requests cost more
than their bytes. It holds each module as a function of its own, below all that the module imports. Called by
the renderer; never changes what a module does.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

import attrs

STATIC: Final = Path(__file__).parent.parent / "static"

#: The one file of modules of a page, by those that it leaves out: only the page of a trace draws spans.
BUNDLES: Final[Mapping[str, frozenset[str]]] = {
    "modules.js": frozenset({"trace.js"}),
    "modules-trace.js": frozenset(),
}
#: Starts all others, so it comes last.
_MAIN: Final = "main.js"
#: How it finds them, alone and in the one file.
_FOUND: Final = ("import(`./${name}.js`)", "Promise.resolve(modules[`${name}.js`])")
_IMPORT: Final = re.compile(r'^import (\{ [\w, ]+ \}) from "\./([a-z-]+\.js)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
#: What only people and the checker of types read.
_COMMENT: Final = re.compile(
    r"^[ \t]*(?:/\*\*(?:(?!\*/).)*\*/|// [^\n]*)\n|/\*\*[^\n]*?\*/ ?", re.MULTILINE | re.DOTALL
)
_LEFT: Final = re.compile(r"^(?:import|export)\b", re.MULTILINE)

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/speculationrules+json",
}


@attrs.frozen
class Asset:
    """One file, plain and compressed."""

    body: bytes = attrs.field(repr=False)
    packed: bytes = attrs.field(repr=False)
    content_type: str


@attrs.frozen
class Assets:
    """All files by name, and the hash of them."""

    files: dict[str, Asset]
    digest: str

    @classmethod
    def read(cls, folder: Path = STATIC, base_path: str = "") -> Assets:
        """Every file of the folder, for a service under this path of its host."""
        files, digest = {}, blake2b(digest_size=8)
        for path in sorted(folder.rglob("*")):
            if path.suffix not in _TYPES:
                continue
            body, name = path.read_bytes(), path.relative_to(folder).as_posix()
            if path.suffix == ".json":
                # Modules import each other by relative paths; what rules say of links are whole paths.
                body = body.replace(b'"/orgs/', f'"{base_path}/orgs/'.encode())
            digest.update(name.encode() + b"\0" + body + b"\0")
            files[name] = _asset(body, path.suffix)
        modules = {name: file.body.decode() for name, file in files.items() if name.endswith(".js")}
        for name, left_out in BUNDLES.items():
            files[name] = _asset(bundle(modules, left_out).encode(), ".js")
        return cls(files, digest.hexdigest())

    def url(self, name: str) -> str:
        """The address of a file; a name that is none is a bug."""
        if name not in self.files:
            raise KeyError(f"no such file among the static ones: {name}")
        return f"/static/{self.digest}/{name}"


def _asset(body: bytes, suffix: str) -> Asset:
    return Asset(body, gzip.compress(body, 9, mtime=0), _TYPES[suffix])


def bundle(modules: Mapping[str, str], left_out: frozenset[str] = frozenset()) -> str:
    """These modules as one, without those left out and what these alone import. Raises `ValueError` for a
    circle of imports, and for a way to import or export that none of ours uses.
    """
    ordered: list[str] = []

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ValueError(f"modules import each other: {' '.join((*importers, name))}")
        if name not in ordered:
            for _, imported in _IMPORT.findall(modules[name]):
                add(imported, (*importers, name))
            ordered.append(name)

    # What pages start, each for an element that names it.
    starting = [name for name, text in modules.items() if "export function start(" in text]
    for name in sorted(set(starting) - left_out):
        add(name, ())
    add(_MAIN, ())
    return "\n".join(["const modules = {};", *(_wrapped(name, modules[name]) for name in ordered), ""])


def _wrapped(name: str, text: str) -> str:
    exported = ", ".join(each for _, each in _EXPORT.findall(text))
    body = _IMPORT.sub(r'const \1 = modules["\2"];', _EXPORT.sub(r"\1", _COMMENT.sub("", text)))
    if _LEFT.search(body):
        raise ValueError(f"{name} imports or exports in a way that cannot be put into one file")
    return f'modules["{name}"] = (() => {{\n{body.replace(*_FOUND)}return {{ {exported} }};\n}})();'
