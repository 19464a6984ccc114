"""What pages load: modules, styles, pictures. Read once, compressed once, named by the hash of all of them.

The hash stands in the folder (`/static/{hash}/…`), so modules import each other by relative paths and every
file may be kept for ever. A hash of an earlier release is answered with what there is now, kept by nobody.
"""

from __future__ import annotations

import gzip
from hashlib import blake2b
from pathlib import Path
from typing import Final

import attrs

STATIC: Final = Path(__file__).parent.parent / "static"

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
            files[name] = Asset(body, gzip.compress(body, 9, mtime=0), _TYPES[path.suffix])
        return cls(files, digest.hexdigest())

    def url(self, name: str) -> str:
        """The address of a file; a name that is none is a bug."""
        if name not in self.files:
            raise KeyError(f"no such file among the static ones: {name}")
        return f"/static/{self.digest}/{name}"
