"""Secrets of a plain local start: made once at random and kept in the data folder, instead of placeholders.

Called by the command line before the service starts. Only an instance with its own embedded database and no
public name gets them: replicas on a served database must share their secrets, and a public instance must be
told them (spec, "Authentication" 11). A secret that the environment names is never replaced.

Secrets: each stands in a file of mode 0600 in `SVC_DATA_DIR/secrets` (0700). Losing `secret-key` makes every
sealed value unreadable, so it belongs into the backup beside the database.
"""

from __future__ import annotations

import os
import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from svc.config.table import BadSetting, Settings, read_settings
from svc.config.types import OWN_KEY, OWN_PASSWORD


def _random_text() -> str:
    return b64encode(secrets.token_bytes(32)).decode()


@attrs.frozen
class Secret:
    """One of them: the variable it stands in for, its file, and how it is read."""

    variable: str
    file: str
    read: Callable[[str], object]


SECRETS: Final = (
    Secret("SVC_SECRET_KEY", "secret-key", OWN_KEY.read),
    Secret("SVC_AUTH_COOKIE_PASSWORD", "cookie-password", OWN_PASSWORD.read),
)


def kept_here(settings: Settings, env: Mapping[str, str]) -> dict[str, Path]:
    """The variables that nobody set and where their values are kept; empty unless this is a local start."""
    if settings.site_domain is not None or not settings.embedded:
        return {}
    folder = settings.data_dir / "secrets"
    return {
        secret.variable: folder / secret.file
        for secret in SECRETS
        if not env.get(secret.variable, "").strip()
    }


def kept_text(data_dir: Path, secret: Secret) -> str | None:
    """What is kept in a data folder, None where nothing is. Raises `BadSetting` when it cannot be used."""
    path = data_dir / "secrets" / secret.file
    if not path.exists():
        return None
    text = _text(path)
    try:
        secret.read(text)
    except ValueError:
        raise BadSetting(f"{path} does not hold what it should, {secret.variable}") from None
    return text


def with_own_secrets(
    settings: Settings, env: Mapping[str, str], *, claim: Callable[[Path], None] | None = None
) -> Settings:
    """The settings with kept secrets in place of unset ones.

    `claim` makes the folder, readable for us alone; with it, secrets that are missing are made. Raises
    `BadSetting` when a kept one cannot be read, `OSError` when the folder cannot be used, and what `claim`
    does.
    """
    paths = kept_here(settings, env)
    texts: dict[str, str] = {}
    for secret in SECRETS:
        path = paths.get(secret.variable)
        if path is None or not (claim or path.exists()):
            continue
        text = _text(path) if claim is None else _secret_text(path, claim)
        try:
            secret.read(text)
        except ValueError:
            raise BadSetting(
                f"{path} does not hold what it should, {secret.variable}. Bring it back from a backup; "
                "or move it to another place to have a new one made, and lose what was sealed with the old"
            ) from None
        texts[secret.variable] = text
    return read_settings({**env, **texts}) if texts else settings


def _secret_text(path: Path, claim: Callable[[Path], None]) -> str:
    """The text of the file, made first when it is missing. Of two processes that make it, one wins."""
    if not path.exists():
        claim(path.parent)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(_random_text() + "\n")
            file.flush()
            os.fsync(fd)
        try:
            # Unlike a rename, a link never replaces what another process has put there meanwhile.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return _text(path)


def _text(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        kind = "a link" if path.is_symlink() else "a folder" if path.is_dir() else "no file"
        variable = next(secret.variable for secret in SECRETS if secret.file == path.name)
        raise BadSetting(
            f"{path} is {kind}, and it must be a file that holds {variable}. Move it to another place to have"
            f" a new one made, or set {variable}"
        )
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(fd, encoding="ascii", errors="replace") as file:
        os.fchmod(fd, 0o600)
        return file.read(4096).strip()
