"""An object store as backups use it, over the library `obstore`, which signs and repeats requests.

The library blocks, so each call is a thread with a deadline; the library's own limits on a request end that
thread. Files are sent in parts and read in ranges: a file is never in memory as a whole.

Secrets: what a store answers may name keys and signatures, so of an error only its code is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import obstore
import trio
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, S3Store

from protocol.backup import BackupDamaged, BackupStoreFailed

_T = TypeVar("_T")

#: One request of the library, with its body; its attempts; how long all attempts may take.
REQUEST_S: Final = 120.0
CONNECT_S: Final = 10.0
RETRIES: Final = 4
RETRY_S: Final = 180.0
#: A call of one or a few requests.
_CALL_S: Final = 600.0
#: Slower than this, a transfer has failed.
_LEAST_BYTES_PER_S: Final = 32 * 1024
#: S3 takes 10,000 parts of a file at most.
PART_BYTES: Final = 8 * 1024 * 1024
_PARTS: Final = 9_000
_PARTS_AT_ONCE: Final = 2
_DELETE_KEYS: Final = 500

_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_REGION: Final = re.compile(r"<Region>([a-z0-9-]{1,40})</Region>")
_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_DENIED: Final = (
    "access denied: the key needs s3:ListBucket, and below the prefix s3:GetObject, s3:PutObject,"
    " s3:DeleteObject and s3:AbortMultipartUpload"
)
_REGION_WRONG: Final = "the bucket is in another region: set AWS_REGION"
_UNKNOWN_KEY: Final = "the store does not know this access key"
_BUSY: Final = "the store is overloaded or out of order: try again later"
_SENTENCES: Final = {
    "NoSuchBucket": "there is no such bucket",
    "InvalidBucketName": "no bucket can have this name",
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "InvalidAccessKeyId": _UNKNOWN_KEY,
    "XAdminUserNotFound": _UNKNOWN_KEY,
    "SignatureDoesNotMatch": "the secret key is not the one of this access key",
    "ExpiredToken": "AWS_SESSION_TOKEN has expired",
    "InvalidToken": "AWS_SESSION_TOKEN is not valid",
    "RequestTimeTooSkewed": "the clocks of this machine and of the store differ: set this machine's clock",
    "AuthorizationHeaderMalformed": _REGION_WRONG,
    "PermanentRedirect": _REGION_WRONG,
    "SlowDown": _BUSY,
    "ServiceUnavailable": _BUSY,
    "InternalError": _BUSY,
    "QuotaExceeded": "the bucket is full",
    "XMinioStorageFull": "the bucket is full",
}
#: Words in an error that has no code, and what they mean.
_HINTS: Final = (
    (
        r"/latest/api/token|169\.254\.|security-credentials",
        "there is no key: set SVC_BACKUP_S3_ACCESS_KEY_ID and _SECRET_ACCESS_KEY, or use a role",
    ),
    ("incorrectly configured region", _REGION_WRONG),
    (
        "(?i)certificate|UnknownIssuer",
        "the certificate is not trusted: name its authority with SVC_BACKUP_S3_CA_FILE",
    ),
    (
        "(?i)InvalidContentType|corrupt message",
        "the endpoint does not speak TLS: does it begin with http://?",
    ),
    ("kind: Connect|dns error", "the endpoint cannot be reached"),
    ("kind: Timeout|timed out|TimedOut", "the endpoint does not answer in time"),
    ("error sending request|kind: Request", "the connection to the endpoint broke"),
    (r"(?i)invalid \w+ response|ill-formed", "the endpoint does not answer as S3 does"),
)


@attrs.frozen
class S3Account:
    """Where a store is and who we are there. Without an endpoint it is AWS, without a key a role.

    Without a region, it is that of AWS_DEFAULT_REGION, or us-east-1.
    """

    bucket: str
    prefix: str
    region: str | None
    endpoint: str | None
    access_key_id: str | None
    secret_access_key: str | None = attrs.field(repr=False)
    session_token: str | None = attrs.field(repr=False)
    #: PEM, on top of the system's certificate authorities.
    authorities: bytes | None = attrs.field(default=None, repr=False)

    @property
    def label(self) -> str:
        """The store as messages name it."""
        url = f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")
        return url if self.endpoint is None else f"{url} at {self.endpoint}"

    def open(self) -> ObstoreStore:
        """The store. Sends nothing yet. Raises `BackupStoreFailed` for what the library does not take."""
        fields: dict[str, Any] = {
            "region": self.region,
            "endpoint": self.endpoint,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "session_token": self.session_token,
        }
        client: dict[str, Any] = {
            "timeout": timedelta(seconds=REQUEST_S),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "allow_http": self.endpoint is not None and self.endpoint.startswith("http://"),
        }
        if self.authorities is not None:
            client["root_certificate"] = self.authorities
        try:
            store = S3Store(
                self.bucket,
                prefix=self.prefix or None,
                client_options=client,  # type: ignore[arg-type]
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
                **{name: value for name, value in fields.items() if value is not None},
            )
        except (BaseError, ValueError) as error:
            raise BackupStoreFailed(f"{self.label}: {sentence_of(error)}") from None
        return ObstoreStore(store, self.label)


@attrs.frozen
class ObstoreStore:
    """A store of the library. Every call raises `BackupStoreFailed` when it was not done."""

    store: S3Store | LocalStore | MemoryStore = attrs.field(repr=False)
    label: str

    async def sizes(self) -> dict[str, int]:
        """Every object below the prefix, with its size."""

        def walk() -> dict[str, int]:
            batches = obstore.list(self.store, chunk_size=1000)
            return {meta["path"]: meta["size"] for batch in batches for meta in batch}

        return await self._call(walk, _CALL_S)

    async def get(self, key: str, limit: int) -> bytes | None:
        """A small object, None when it is not there. Raises `BackupDamaged` for one beyond the limit."""

        def fetch() -> bytes | None:
            try:
                result = obstore.get(self.store, key)
            except FileNotFoundError as error:
                if _is_missing(error):
                    return None
                raise
            if result.meta["size"] > limit:
                raise BackupDamaged(f"{key} in {self.label} is larger than it may be")
            return bytes(result.bytes())

        return await self._call(fetch, _transfer_s(limit))

    async def read(self, key: str, start: int, length: int) -> bytes:
        """Part of an object, nothing behind its end. Raises `BackupDamaged` when it is not there."""

        def fetch() -> bytes:
            try:
                return bytes(obstore.get_range(self.store, key, start=start, length=length))
            except FileNotFoundError as error:
                if _is_missing(error):
                    raise BackupDamaged(f"{key} is missing in {self.label}") from None
                raise
            except BaseError:
                # A range that begins behind the end is refused by each kind of store in words of its own.
                with suppress(BaseError):
                    if obstore.head(self.store, key)["size"] <= start:
                        return b""
                raise

        return await self._call(fetch, _transfer_s(length))

    async def put(self, key: str, data: bytes) -> None:
        """Store a small object."""
        await self._call(
            partial(obstore.put, self.store, key, data, use_multipart=False), _transfer_s(len(data))
        )

    async def put_file(self, key: str, path: Path, size: int) -> None:
        """Store a file, in parts when it is large."""
        part_bytes = max(PART_BYTES, -(-size // _PARTS))
        send = partial(
            obstore.put,
            self.store,
            key,
            path,
            use_multipart=size > part_bytes,
            chunk_size=part_bytes,
            max_concurrency=_PARTS_AT_ONCE,
        )
        await self._call(send, _transfer_s(size))

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are not there are no error."""

        def remove(some: Sequence[str]) -> None:
            try:
                obstore.delete(self.store, some)
            except FileNotFoundError as error:
                if not _is_missing(error):
                    raise

        for begin in range(0, len(keys), _DELETE_KEYS):
            await self._call(partial(remove, keys[begin : begin + _DELETE_KEYS]), _CALL_S)

    async def _call(self, work: Callable[[], _T], timeout_s: float) -> _T:
        try:
            with trio.fail_after(timeout_s):
                return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
        except trio.TooSlowError:
            raise BackupStoreFailed(f"{self.label}: not done within {timeout_s:.0f} s") from None
        except (BaseError, OSError, ValueError) as error:
            raise BackupStoreFailed(f"{self.label}: {sentence_of(error)}") from None


def _transfer_s(size: int) -> float:
    return _CALL_S + size / _LEAST_BYTES_PER_S


def _is_missing(error: FileNotFoundError) -> bool:
    return "<Code>NoSuchBucket</Code>" not in str(error)


def sentence_of(error: Exception) -> str:
    """What an error of the library means. Nothing of its text but codes is in the answer."""
    text = str(error)
    code, status, region = _CODE.search(text), _STATUS.search(text), _REGION.search(text)
    if code is not None and code[1] in _SENTENCES:
        sentence = _SENTENCES[code[1]]
        return f"{sentence}={region[1]}" if sentence == _REGION_WRONG and region is not None else sentence
    for pattern, sentence in _HINTS:
        if code is None and re.search(pattern, text):
            return sentence
    if status is not None and status[1] in ("401", "403"):
        return _DENIED
    answer = code or status
    if answer is None:
        return f"the call failed ({type(error).__name__})"
    return f"the store answered {answer[1]}"
