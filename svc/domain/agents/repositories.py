"""The repository that a project names for its agents: how it may be named, and whose credential opens it.

`repository_fault` refuses what is no plain https address, `is_hosted_by` says whether a Git integration is
that of its host. Called where one is set and again where it is used. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

_HOSTS: Final[Mapping[str, str]] = {"github": "github.com", "gitlab": "gitlab.com"}
#: As whom a token signs in where its integration names nobody.
GIT_USERS: Final[Mapping[str, str]] = {"github": "x-access-token", "gitlab": "oauth2"}
_REF: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}", re.ASCII)


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        # `port` raises only when it is read.
        return parts if parts.port is None or parts.port else None
    except ValueError:
        return None


def repository_fault(clone_url: str, ref: str | None) -> str | None:
    """Why this names no repository that may be read."""
    parts = _parts(clone_url)
    plain = re.fullmatch(r"[!-~]+", clone_url, re.ASCII) is not None
    if parts is None or not plain or parts.scheme != "https" or not parts.hostname or len(parts.path) < 2:
        return "a repository is named by its https address"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "the address of a repository holds no user, no secret and no query"
    if ref is not None and (not _REF.fullmatch(ref) or ".." in ref):
        return "a branch, a tag or a commit is named by letters, digits and ._/+-"
    return None


def is_hosted_by(clone_url: str, provider: str, base_url: str | None) -> bool:
    """Whether a repository is on the host of a Git integration; to another its credential is not sent."""
    repository, host = _parts(clone_url), None if base_url is None else _parts(base_url)
    if repository is None or (base_url is not None and host is None):
        return False
    if host is None:
        return (repository.hostname, repository.port or 443) == (_HOSTS.get(provider), 443)
    # The API of the public host has a name of its own.
    name = (host.hostname or "").removeprefix("api.") if host.hostname == "api.github.com" else host.hostname
    return (repository.hostname, repository.port or 443) == (name, host.port or 443)
