"""Laws of the client of object stores: what its errors say, and what they never say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs
import pytest
import trio
from obstore.store import MemoryStore

from protocol.backup import BackupDamaged, BackupStoreFailed
from svc.outside import objects
from svc.outside.objects import ObstoreStore, S3Account
from tests.service import free_port

KEY, SECRET, TOKEN = "AKIAPLANTED", "planted-secret", "planted-token"


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """A server that answers everything so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_PUT = do_POST = do_DELETE = do_GET

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "RETRIES", 1)
    monkeypatch.setattr(objects, "REQUEST_S", 1.0)
    monkeypatch.setattr(objects, "CONNECT_S", 1.0)


def account(endpoint: str, **fields: str | None) -> S3Account:
    usual = S3Account(
        bucket="backups",
        prefix="one",
        region="us-east-1",
        endpoint=endpoint,
        access_key_id=KEY,
        secret_access_key=SECRET,
        session_token=TOKEN,
    )
    return attrs.evolve(usual, **fields)  # type: ignore[arg-type]


async def errors_of(store: ObstoreStore, path: Path) -> set[str]:
    """What every kind of call says."""
    await trio.Path(path).write_bytes(b"x")
    calls = (
        store.sizes,
        lambda: store.get("manifest.json", 100),
        lambda: store.read("tables/x", 0, 10),
        lambda: store.put("tables/x", b"x"),
        lambda: store.put_file("tables/x", path, 1),
        lambda: store.delete(["tables/x"]),
    )
    sentences = set()
    for call in calls:
        with pytest.raises(BackupStoreFailed) as refused:
            await call()
        assert refused.value.__cause__ is None
        sentences.add(str(refused.value))
    return sentences


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (404, "NoSuchBucket", "there is no such bucket"),
        (403, "AccessDenied", "access denied: the key needs s3:ListBucket"),
        (403, "", "access denied"),
        (403, "InvalidAccessKeyId", "does not know this access key"),
        (403, "SignatureDoesNotMatch", "the secret key is not the one of this access key"),
        (403, "RequestTimeTooSkewed", "set this machine's clock"),
        (400, "AuthorizationHeaderMalformed", "set AWS_REGION=eu-west-1"),
        (400, "ExpiredToken", "AWS_SESSION_TOKEN has expired"),
        (400, "Odd", "the store answered Odd"),
        (418, "", "the store answered 418"),
    ],
)
async def test_an_error_says_what_to_do_and_nothing_of_a_key(
    tmp_path: Path, status: int, code: str, sentence: str
) -> None:
    body = (
        f"<Error><Code>{code}</Code><AWSAccessKeyId>{KEY}</AWSAccessKeyId><Region>eu-west-1</Region>"
        f"<StringToSign>{SECRET} {TOKEN}</StringToSign></Error>"
    )
    with answering(status, body if code else "") as endpoint:
        store = account(endpoint).open()
        sentences = await errors_of(store, tmp_path / "file")
    for text in sentences:
        assert text.startswith(f"s3://backups/one at {endpoint}: ")
        assert sentence in text
        assert not {KEY, SECRET, TOKEN} & set(text.replace("=", " ").split())
        assert "planted" not in text.lower()
    assert "planted" not in repr(store) + repr(account(endpoint, access_key_id=None))


async def test_an_endpoint_that_nobody_listens_on_cannot_be_reached(tmp_path: Path) -> None:
    store = account(f"http://127.0.0.1:{free_port()}").open()
    assert all("cannot be reached" in text for text in await errors_of(store, tmp_path / "file"))


async def test_an_endpoint_without_tls_is_told_from_one_with_it(tmp_path: Path) -> None:
    with answering(200, "") as endpoint:
        store = account(endpoint.replace("http:", "https:")).open()
        with pytest.raises(BackupStoreFailed, match=r"begin with http://|cannot be reached"):
            await store.sizes()


async def test_an_endpoint_that_does_not_answer_ends_a_call(tmp_path: Path) -> None:
    with trio.socket.socket() as silent:
        await silent.bind(("127.0.0.1", 0))
        silent.listen()
        store = account(f"http://127.0.0.1:{silent.getsockname()[1]}").open()
        with trio.fail_after(20), pytest.raises(BackupStoreFailed, match="does not answer in time"):
            await store.sizes()


async def test_a_call_has_a_deadline_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_CALL_S", 0.2)
    monkeypatch.setattr(objects, "REQUEST_S", 5.0)
    with trio.socket.socket() as silent:
        await silent.bind(("127.0.0.1", 0))
        silent.listen()
        store = account(f"http://127.0.0.1:{silent.getsockname()[1]}").open()
        with trio.fail_after(4), pytest.raises(BackupStoreFailed, match="not done within 0 s"):
            await store.sizes()


async def test_what_is_no_store_is_reported() -> None:
    with (
        answering(200, "<html>welcome") as endpoint,
        pytest.raises(BackupStoreFailed, match="does not answer as S3 does"),
    ):
        await account(endpoint).open().sizes()


async def test_what_is_not_there_is_none_or_damage() -> None:
    with answering(404, "<Error><Code>NoSuchKey</Code></Error>") as endpoint:
        store = account(endpoint).open()
        assert await store.get("manifest.json", 100) is None
        with pytest.raises(BackupDamaged, match="tables/x is missing in s3://backups/one"):
            await store.read("tables/x", 0, 10)


async def test_what_is_larger_than_it_may_be_is_not_read() -> None:
    store = ObstoreStore(MemoryStore(), "memory")
    await store.put("manifest.json", b"x" * 101)
    with pytest.raises(BackupDamaged, match="larger than it may be"):
        await store.get("manifest.json", 100)
    assert await store.get("manifest.json", 101) == b"x" * 101
