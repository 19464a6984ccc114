"""Sealing: only the right key opens, for the right purpose; a lost key says so; rotation leaves nothing."""

from __future__ import annotations

import argparse
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.sealed import Lost
from svc.application.open_store import Store
from svc.commands import secrets as secrets_rotation
from svc.commands.secrets import SomeLost, run
from svc.config.table import Settings, read_settings
from svc.secrets.sealing import Sealer, key_id
from svc.store.accounts.integrations import Integration, IntegrationStore
from svc.store.postgres.database import Database

OLD, NEW, OTHER = bytes(32), bytes(range(32)), bytes([7]) * 32
KEYS = st.binary(min_size=32, max_size=32)
NOW = datetime(2026, 11, 20, tzinfo=UTC)


@given(st.text(st.characters(exclude_categories=["Cs"])), KEYS, st.text(max_size=20))
def test_what_is_sealed_opens_with_its_key_only(text: str, key: bytes, purpose: str) -> None:
    sealed = Sealer((key,)).seal(text, purpose)
    assert Sealer((key,)).open(sealed, purpose) == text
    assert Sealer((OTHER, key)).open(sealed, purpose) == text
    assert isinstance(Sealer((key,)).open(sealed, purpose + "x"), Lost)
    if key != OTHER:
        assert isinstance(Sealer((OTHER,)).open(sealed, purpose), Lost)


def test_the_layout_is_key_id_nonce_ciphertext_tag() -> None:
    raw = b64decode(Sealer((NEW,)).seal("secret", "p"))
    assert raw[:4] == key_id(NEW)
    assert len(raw) == 4 + 12 + len("secret") + 16
    assert NEW[:4] not in raw


def test_the_same_text_is_never_sealed_alike() -> None:
    sealer = Sealer((NEW,))
    assert sealer.seal("secret", "p") != sealer.seal("secret", "p")


@given(st.integers(0, 37), st.integers(1, 255))
def test_a_touched_value_is_damaged_or_lost(position: int, flip: int) -> None:
    raw = bytearray(b64decode(Sealer((NEW,)).seal("secret", "p")))
    raw[position] ^= flip
    assert isinstance(Sealer((NEW,)).open(b64encode(raw).decode(), "p"), Lost)


@given(st.text(max_size=100))
def test_anything_else_is_damaged_and_not_an_error(text: str) -> None:
    assert isinstance(Sealer((NEW,)).open(text, "p"), Lost)
    assert not Sealer((NEW,)).opens(text)


def test_a_lost_key_says_which_and_what_to_do() -> None:
    lost = Sealer((NEW,)).open(Sealer((OLD,)).seal("secret", "p"), "p")
    assert isinstance(lost, Lost)
    assert key_id(OLD).hex() in lost.reason
    assert "SVC_SECRET_KEY_PREVIOUS" in lost.reason


def test_no_key_stands_in_a_repr() -> None:
    assert repr(Sealer((NEW,))) == "Sealer()"


def settings(present: bytes, *previous: bytes) -> Settings:
    return read_settings(
        {
            "SVC_SECRET_KEY": b64encode(present).decode(),
            "SVC_SECRET_KEY_PREVIOUS": " ".join(b64encode(key).decode() for key in previous),
        }
    )


@pytest.fixture
def beside(store: Database, monkeypatch: pytest.MonkeyPatch) -> IntegrationStore:
    """The command line on the test's database."""

    @asynccontextmanager
    async def opened(_settings: Settings) -> AsyncIterator[Store]:
        yield Store(store, None)

    monkeypatch.setattr(secrets_rotation, "open_store", opened)
    return IntegrationStore(store)


async def add(beside: IntegrationStore, name: str, key: bytes) -> Integration:
    row = Integration(uuid4(), 1, "git", "github", name, None, None, None, NOW, NOW)
    row = Integration(
        row.id, 1, "git", "github", name, None, None, Sealer((key,)).seal(f"s-{name}", row.purpose), NOW, NOW
    )
    assert await beside.put(row, "tests") is None
    return row


async def opened_with(beside: IntegrationStore, row: Integration, key: bytes) -> object:
    found = await beside.one(1, row.id)
    assert found is not None
    assert found.sealed is not None
    return Sealer((key,)).open(found.sealed, found.purpose)


async def test_rotation_reseals_what_an_earlier_key_sealed_and_can_be_repeated(
    beside: IntegrationStore, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = await add(beside, "old", OLD), await add(beside, "new", NEW)
    for told in ("1 of 2", "0 of 2"):
        await run(argparse.Namespace(verb="rotate", json=False), settings(NEW, OLD))
        assert told in capsys.readouterr().out
    for row in (old, new):
        assert await opened_with(beside, row, NEW) == f"s-{row.name}"


async def test_a_lost_value_is_named_and_the_others_are_rotated(
    beside: IntegrationStore, capsys: pytest.CaptureFixture[str]
) -> None:
    lost, old = await add(beside, "lost", OTHER), await add(beside, "old", OLD)
    with pytest.raises(SomeLost, match="1 of 2"):
        await run(argparse.Namespace(verb="rotate", json=False), settings(NEW, OLD))
    out = capsys.readouterr().out
    assert "lost      git 'lost'" in out
    assert "s-" not in out.replace("trace-svc", "")
    assert await opened_with(beside, old, NEW) == "s-old"
    assert await opened_with(beside, lost, OTHER) == "s-lost"


async def test_listing_changes_nothing(beside: IntegrationStore, capsys: pytest.CaptureFixture[str]) -> None:
    old = await add(beside, "old", OLD)
    await run(argparse.Namespace(verb="list", json=False), settings(NEW, OLD))
    assert "earlier   git 'old'" in capsys.readouterr().out
    assert await opened_with(beside, old, OLD) == "s-old"


async def test_what_was_entered_anew_meanwhile_is_not_overwritten(beside: IntegrationStore) -> None:
    row = await add(beside, "x", OLD)
    fresh = Sealer((NEW,)).seal("fresh", row.purpose)
    assert await beside.reseal(row, fresh)
    assert not await beside.reseal(row, Sealer((NEW,)).seal("stale", row.purpose))
    assert await opened_with(beside, row, NEW) == "fresh"
