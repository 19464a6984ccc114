"""`trace-svc init [DIR]`: a folder that `docker compose up` starts from.

Writes `compose.yaml` and `.env` with secrets: fresh ones, or those that an instance without a public name has
kept in `SVC_DATA_DIR/secrets`, which would be ignored once it gets one: whatever they sealed would be lost.
Never overwrites a file.

Secrets: `.env` is readable by its owner alone; nothing of it is printed.
"""

from __future__ import annotations

import argparse
import os
import secrets
from base64 import b64encode
from importlib.resources import files
from pathlib import Path
from typing import Final

from protocol.operator import OperatorError
from protocol.release import image_tag, release
from svc.commands.terminal import offer_json, print_json
from svc.config.checks import boot_refusals
from svc.config.table import BadSetting, Settings, read_settings
from svc.secrets.own import SECRETS, kept_text

COMPOSE: Final = "compose.yaml"
ENV: Final = ".env"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Write compose.yaml and .env to a folder, with new secrets or those of SVC_DATA_DIR.\n"
        "Then run `docker compose up -d` in that folder to start the service."
    )
    parser.add_argument("folder", nargs="?", default=".", help="target folder (default: the current one)")
    parser.add_argument("--domain", help="public host name; the service then uses HTTPS")
    parser.add_argument(
        "--email", help="your e-mail address for the certificate authority; needed with --domain"
    )
    parser.add_argument(
        "--postgres", action="store_true", help="store the data in a separate PostgreSQL container"
    )
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Write both files and say what to do next. Raises `OperatorError` when there is one already."""
    _make(arguments, settings)


def _make(arguments: argparse.Namespace, settings: Settings) -> None:
    folder = Path(arguments.folder)
    env = _environment(arguments, settings)
    try:
        refusals = boot_refusals(read_settings(env))
    except BadSetting as bad:
        refusals = [str(bad)]
    if refusals:
        raise OperatorError("; ".join(refusals).replace("ACME_EMAIL is blank", "--email is missing"))
    for name in (COMPOSE, ENV):
        if (folder / name).exists():
            raise OperatorError(f"{folder / name} exists; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "certs").mkdir(exist_ok=True)
    template = files("svc.commands").joinpath(COMPOSE).read_text(encoding="utf-8")
    _write(folder / COMPOSE, template, 0o644)
    _write(folder / ENV, "".join(f"{name}={value}\n" for name, value in env.items()), 0o600)
    profile = " --profile postgres" if arguments.postgres else ""
    commands = [f"docker compose{profile} up -d", "docker compose exec trace-svc cat /data/first-keys"]
    if arguments.json:
        files_made = [str(folder / COMPOSE), str(folder / ENV)]
        print_json({"folder": str(folder), "files": files_made, "next": commands})
        return
    print(f"wrote {folder / COMPOSE} and {folder / ENV}")
    print(f"keep {ENV} as safe as the data: it has the keys to encrypted values")
    print(f"next, in {folder}: {commands[0]}")
    print(f"then: {commands[1]}")


def _environment(arguments: argparse.Namespace, settings: Settings) -> dict[str, str]:
    """The lines of `.env`, in their order."""
    env = {"TRACE_SVC_IMAGE": f"trace-svc:{image_tag(release())}"}
    for secret in SECRETS:
        secret_text = kept_text(settings.data_dir, secret)
        env[secret.variable] = secret_text or b64encode(secrets.token_bytes(32)).decode()
    env["SANDBOX_RUNNER_KEY"] = secrets.token_urlsafe(32)
    if arguments.domain:
        env["SITE_DOMAIN"] = arguments.domain
        if arguments.email:
            env["ACME_EMAIL"] = arguments.email
    if arguments.postgres:
        env |= {
            "DB_HOST": "postgres",
            "DB_PASSWORD": secrets.token_urlsafe(24),
            "TRACE_SVC_DATA_DIR": "trace-svc-state",
        }
    return env


def _write(path: Path, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
