"""What is wrong with a path, in a sentence that names the first thing in its way, and what to do about it.

Called where a folder or a file of an operator cannot be used: the embedded database, secrets, certificates,
the spool, the command line and `doctor`. Looks at the file system and never changes it.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path
from typing import Final

import attrs

#: Whether `access` can ask for the account that we act as, and not for the one that started us.
_AS_WE_ACT: Final = os.access in os.supports_effective_ids


_MOUNT: Final = "Mount it writable"


@attrs.frozen
class Obstacle:
    """What keeps us from a path: `fault` says what is wrong, `way_out` what to do; no full stops."""

    fault: str
    way_out: str

    def text(self, variable: str | None) -> str:
        """Two sentences. `variable` is the setting that names the path; None where a command line does."""
        other = f"set {variable} to another path" if variable else "name another path"
        return f"{self.fault}. {self.way_out}, or {other}"


def path_refusal(path: Path, error: OSError, variable: str | None = None) -> str:
    """Why `path` cannot be used after it answered with `error`, and the way out, two sentences."""
    try:
        path = path.absolute()
    except FileNotFoundError:
        return CURRENT_FOLDER_GONE
    # What the system answered is true at least of the moment when it did.
    seen = None if error.errno == errno.ENOENT else obstacle(path)
    return (seen or _of_error(path, error)).text(variable)


CURRENT_FOLDER_GONE: Final = (
    "The current folder does not exist any more. Change into one that does (cd), and run this again"
)


def obstacle(path: Path) -> Obstacle | None:
    """What keeps this account from reading and writing `path`, or from making it; None when nothing is seen.

    `path` is absolute.
    """
    for part in (*reversed(path.parents), path):
        try:
            found = part.stat()
        except FileNotFoundError:
            return _missing(part) if part.is_symlink() else _not_to_be_made(part)
        except PermissionError:
            return _closed(part.parent, os.X_OK)
        except OSError as error:
            return _of_error(part, error)
        if part != path and not stat.S_ISDIR(found.st_mode):
            return file_instead(part)
    if not path.is_dir():
        return _closed(path, os.R_OK) or _closed(path, os.W_OK)
    return _closed(path, os.W_OK | os.X_OK)


def file_instead(path: Path) -> Obstacle:
    """There is a file where a folder has to be."""
    return Obstacle(f"{path} is a file, and a folder is needed there", "Move the file to another place")


def _not_to_be_made(path: Path) -> Obstacle | None:
    closed = _closed(path.parent, os.W_OK | os.X_OK)
    if closed is None:
        return None
    fault = f"{path} cannot be made: {closed.fault}"
    if closed.way_out == _MOUNT:
        return Obstacle(fault, _MOUNT)
    # To open a folder above ours to this account is more than it needs.
    return Obstacle(fault, f"Make it for the account {user_name(os.geteuid())}")


def _closed(path: Path, wanted: int) -> Obstacle | None:
    """What of `wanted` this account may not do with `path`, which exists."""
    if wanted & os.W_OK and os.statvfs(path).f_flag & os.ST_RDONLY:
        return Obstacle(f"{path} is on a file system that is mounted read-only", _MOUNT)
    if os.access(path, wanted, effective_ids=_AS_WE_ACT):
        return None
    write = "write into" if path.is_dir() else "write"
    may = write if wanted & os.W_OK else "read" if wanted & os.R_OK else "enter"
    found = path.stat()
    owner = f"it belongs to {user_name(found.st_uid)} and has mode {stat.S_IMODE(found.st_mode):o}"
    us = user_name(os.geteuid())
    return Obstacle(f"the account {us} may not {may} {path}: {owner}", f"Allow {us} to {may} it")


def _missing(part: Path) -> Obstacle:
    """There is nothing at `part`, and everything above it exists."""
    if part.is_symlink():
        target = os.readlink(part)
        return Obstacle(f"{part} is a link to {target}, which does not exist", f"Make {target}")
    return Obstacle(f"{part} does not exist", "Put it there")


def _of_error(path: Path, error: OSError) -> Obstacle:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return Obstacle(f"there is no space left for {path}", "Free some space")
        case errno.ENOENT:
            return _missing(
                next((part for part in (*reversed(path.parents), path) if not part.exists()), path)
            )
        case errno.EISDIR:
            return Obstacle(f"{path} is a folder, and a file is needed there", "Move it to another place")
        case errno.ENAMETOOLONG:
            return Obstacle(f"the name of {path} is too long", "Shorten it")
        case _:
            return Obstacle(
                f"{path} cannot be used: {error.strerror or error}", "Check the path and its disk"
            )


def user_name(uid: int) -> str:
    """The account's name, or `uid 1234` when it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
