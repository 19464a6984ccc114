"""The client of authorities against a real one: accounts, rejected nonces, both challenges, faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
import trio
from hypercorn.trio import serve as serve_http

from protocol.certificates import AuthorityFault, ChallengeKind, Kept, NotProven, Ordered, Pair
from svc.front.server.connection import contain_connections
from svc.front.server.connection_limiter import ConnectionLimiter
from svc.front.server.door import Door
from svc.front.server.hypercorn import HttpConfig
from svc.front.server.listening import bound
from svc.front.server.plain import PlainPort
from svc.front.server.tls import TlsDoors
from svc.outside.acme import AcmeAuthority
from svc.secrets.certificates import checked, proof, self_signed
from svc.secrets.tls_files import TlsFiles
from tests.pebble import Pebble, pebble
from tests.service import free_port

DOMAIN = "localhost"


@attrs.frozen
class Ports:
    plain: int
    tls: int


@pytest.fixture(scope="module")
def ports() -> Ports:
    return Ports(free_port(), free_port())


@pytest.fixture(scope="module")
def authority(ports: Ports) -> Iterator[Pebble]:
    with pebble(ports.plain, ports.tls) as found:
        yield found


def client(authority: Pebble, domain: str = DOMAIN) -> AcmeAuthority:
    return AcmeAuthority(authority.directory_url, "me@example.org", domain, "tests", authority.ca_file)


async def _nobody(*_: object) -> None:
    raise AssertionError("the plain port answers by itself")


@asynccontextmanager
async def doors(ports: Ports, store: TlsFiles) -> AsyncIterator[TlsDoors]:
    """Both doors of ours, with nothing behind them."""
    tls = TlsDoors()
    tls.serve(self_signed(DOMAIN, datetime.now(UTC)))
    contain_connections(ConnectionLimiter(lambda: 100), tls)
    door = Door(otlp={}, mcp=_nobody, app=_nobody, plain=PlainPort(DOMAIN, store.answer))
    with bound("127.0.0.1", ports.plain, "PLAIN") as plain, bound("127.0.0.1", ports.tls, "TLS") as secure:
        config = HttpConfig(plain, (secure, tls.https))

        async def serve(*, task_status: trio.TaskStatus[list[str]]) -> None:
            await serve_http(
                door,  # type: ignore[arg-type]
                config,
                mode="asgi",
                shutdown_trigger=trio.sleep_forever,
                task_status=task_status,
            )

        async with trio.open_nursery() as nursery:
            await nursery.start(serve)
            yield tls
            nursery.cancel_scope.cancel()
    contain_connections(ConnectionLimiter(lambda: 100))


async def obtained(
    authority: Pebble, ports: Ports, folder: Path, kept: Kept, kind: ChallengeKind
) -> tuple[Ordered, Pair]:
    store = TlsFiles(folder, DOMAIN)
    acme = client(authority)
    async with doors(ports, store) as tls:
        ordered = await acme.order(kept, kind)
        assert ordered.challenge is not None
        if kind == "http-01":
            await store.publish(ordered.challenge)
        else:
            tls.prove(proof(ordered.challenge, datetime.now(UTC)))
        return ordered, await acme.finish(ordered)


@pytest.mark.parametrize("kind", ["http-01", "tls-alpn-01"])
async def test_a_certificate_is_got_by_either_challenge_though_nonces_are_rejected(
    authority: Pebble, ports: Ports, tmp_path: Path, kind: ChallengeKind
) -> None:
    with trio.fail_after(60):
        ordered, pair = await obtained(authority, ports, tmp_path, Kept(), kind)
        facts = checked(pair, datetime.now(UTC), "what pebble gave")
        assert facts.covers(DOMAIN)
        assert not facts.self_signed
        # The account is used again, and a certificate can be asked after.
        again = await client(authority).order(ordered.kept, kind)
        assert again.kept.account_url == ordered.kept.account_url
        at = await client(authority).renewal(pair)
        assert at is None or at < facts.ends_at
        # A start that was cut off before it kept the address of its account finds it by the key.
        found = await client(authority).order(attrs.evolve(ordered.kept, account_url=None), kind)
        assert found.kept.account_url == ordered.kept.account_url
        # At another authority it is worth nothing.
        moved = attrs.evolve(ordered.kept, directory_url="https://elsewhere.example/dir")
        assert (await client(authority).order(moved, kind)).kept.account_key != ordered.kept.account_key


@pytest.mark.parametrize("kind", ["http-01", "tls-alpn-01"])
async def test_a_name_that_cannot_be_proven_says_so_in_the_words_of_the_authority(
    authority: Pebble, kind: ChallengeKind
) -> None:
    acme = client(authority)
    with trio.fail_after(60):
        ordered = await acme.order(Kept(), kind)
        # Nothing listens at the ports.
        with pytest.raises(NotProven, match="could not see that the name is ours"):
            await acme.finish(ordered)


async def test_an_authority_that_is_away_or_refuses_is_an_outage(authority: Pebble, tmp_path: Path) -> None:
    nowhere = attrs.evolve(client(authority), directory_url=f"https://localhost:{free_port()}/dir")
    with trio.fail_after(60):
        with pytest.raises(AuthorityFault, match="cannot be reached"):
            await nowhere.order(Kept(), "http-01")
        with pytest.raises(AuthorityFault, match="the authority refuses"):
            await client(authority, "not_a_name.example").order(Kept(), "http-01")
        wrong = attrs.evolve(client(authority), directory_url=authority.directory_url + "/nothing")
        with pytest.raises(AuthorityFault):
            await wrong.order(Kept(), "http-01")
        untrusted = attrs.evolve(client(authority), ca_file=None)
        with pytest.raises(AuthorityFault, match="SSLError"):
            await untrusted.order(Kept(), "http-01")
