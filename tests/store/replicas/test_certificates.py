"""The certificate that copies share: sealed where it lies, told to the others, its challenges answered."""

from __future__ import annotations

import attrs
import trio

from protocol.certificates import Challenge, Kept, Pair
from svc.secrets.sealing import Sealer
from svc.store.postgres.database import Database
from svc.store.replicas.certificates import PostgresCertificateStore

DOMAIN = "traces.example.org"
KEPT = Kept(
    b"account key", "https://authority/acct/1", "https://authority/dir", "tls-alpn-01", Pair(b"c", b"k")
)
ASKED = Challenge("tls-alpn-01", DOMAIN, "token", "token.thumb")


def certificates(database: Database, key: bytes = b"k" * 32) -> PostgresCertificateStore:
    sealer = Sealer((key,))
    return PostgresCertificateStore(
        database, DOMAIN, lambda text: sealer.seal(text, "x"), lambda sealed: sealer.open(sealed, "x")
    )


async def test_what_is_kept_comes_back_and_lies_sealed(store: Database) -> None:
    assert await certificates(store).load() == Kept()
    await certificates(store).keep(attrs.evolve(KEPT, pair=None))
    await certificates(store).keep(KEPT)
    assert await certificates(store).load() == KEPT
    rows = await store.fetch("select sealed from certificate")
    assert len(rows) == 1
    assert "authority" not in rows[0]["sealed"]
    # Under another key it is got anew.
    assert await certificates(store, b"x" * 32).load() == Kept()
    assert await attrs.evolve(certificates(store), domain="other.example.org").load() == Kept()


async def test_any_copy_answers_a_challenge_until_it_is_withdrawn_or_over(store: Database) -> None:
    one, other = certificates(store), certificates(store)
    await one.publish(ASKED)
    await one.publish(ASKED)
    assert await other.answer("token") == "token.thumb"
    assert await other.answer("else") is None
    assert list(await other.challenges()) == [ASKED]
    await one.withdraw(ASKED)
    assert await other.answer("token") is None
    await one.publish(ASKED)
    await store.fetch("update acme_challenge set expires_at = now() - interval '1 s'")
    assert await other.answer("token") is None
    assert list(await other.challenges()) == []
    await one.publish(attrs.evolve(ASKED, token="second"))
    assert [row["token"] for row in await store.fetch("select token from acme_challenge")] == ["second"]


async def test_each_change_is_told_to_the_other_copies(store: Database) -> None:
    with trio.fail_after(60):
        async with certificates(store).notices() as notices:
            await certificates(store).keep(KEPT)
            assert await anext(notices) == ""
            await certificates(store).publish(ASKED)
            assert await anext(notices) == ""
            await certificates(store).withdraw(ASKED)
            assert await anext(notices) == ""
