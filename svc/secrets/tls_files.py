"""Account, certificate and challenges in files of the data folder: for an instance with its own database.

`SVC_DATA_DIR/tls` has `account.pem`, `account.json`, `NAME.crt` and `NAME.key`: 0600 in 0700, each written
whole. Challenges live for seconds and are held in memory: there is one process.

Secrets: the private keys of the account and of the certificate.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from protocol.certificates import CHALLENGES, Challenge, Kept, Pair
from protocol.storage import Outage

_FACTS = ("account_url", "directory_url", "proven_by")


@attrs.define(eq=False)
class TlsFiles:
    """The folder of one domain."""

    folder: Path
    domain: str
    _waiting: dict[str, Challenge] = attrs.field(factory=dict)

    async def load(self) -> Kept:
        """What is kept; nothing for what is not there. Raises `Outage` when the folder cannot be read."""
        return await trio.to_thread.run_sync(self._load)

    async def keep(self, kept: Kept) -> None:
        """Write it. Raises `Outage` when the folder cannot be written."""
        await trio.to_thread.run_sync(self._keep, kept)

    async def publish(self, challenge: Challenge) -> None:
        """Answer this challenge from now on."""
        self._waiting[challenge.token] = challenge

    async def withdraw(self, challenge: Challenge) -> None:
        """Answer it no longer."""
        self._waiting.pop(challenge.token, None)

    async def challenges(self) -> Sequence[Challenge]:
        """Those that are waited for."""
        return tuple(self._waiting.values())

    async def answer(self, token: str) -> str | None:
        """The key authorization of a token that is waited for."""
        challenge = self._waiting.get(token)
        return None if challenge is None else challenge.key_authorization

    def _load(self) -> Kept:
        try:
            chain, key = self._read(f"{self.domain}.crt"), self._read(f"{self.domain}.key")
            account_key, state_text = self._read("account.pem"), self._read("account.json")
        except OSError as error:
            raise Outage(f"{self.folder} cannot be read ({error.strerror})") from error
        try:
            state = json.loads(state_text or b"{}")
            facts = {name: state[name] for name in _FACTS if isinstance(state.get(name), str)}
        except (ValueError, AttributeError):
            # Half a file is none: the account is found again by its key.
            facts = {}
        if facts.get("proven_by") not in CHALLENGES:
            facts.pop("proven_by", None)
        return Kept(
            account_key=account_key, pair=None if chain is None or key is None else Pair(chain, key), **facts
        )

    def _keep(self, certificate: Kept) -> None:
        files = {
            "account.pem": certificate.account_key,
            "account.json": json.dumps({name: getattr(certificate, name) for name in _FACTS}).encode(),
            f"{self.domain}.key": None if certificate.pair is None else certificate.pair.key,
            f"{self.domain}.crt": None if certificate.pair is None else certificate.pair.chain,
        }
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            for name, text in files.items():
                if text is not None:
                    self._write(name, text)
        except OSError as error:
            raise Outage(f"{self.folder} cannot be written ({error.strerror})") from error

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, name: str, text: bytes) -> None:
        draft = self.folder / f".{name}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / name)
