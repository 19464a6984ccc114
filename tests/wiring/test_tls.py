"""What a start does with the operator's certificate: it serves it, warns of it or refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.certificates import BadPair
from svc.config.table import Settings, read_settings
from svc.wiring.tls import open_tls
from tests.certificates import BROKEN, broken, mount, pair_for

DOMAIN = "traces.example.org"


def own(certs: Path) -> Settings:
    return read_settings({"SITE_DOMAIN": DOMAIN, "TLS_MODE": "owncert", "SVC_CERTS_DIR": str(certs)})


@pytest.mark.parametrize("names", [(DOMAIN,), ("*.example.org",), ("else.example.org", DOMAIN)])
def test_a_pair_for_the_domain_is_served_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, names: tuple[str, ...]
) -> None:
    mount(tmp_path, pair_for(*names))
    tls = open_tls(own(tmp_path))
    assert tls is not None
    assert tls.report()["tls"] == "valid"
    assert caplog.records == []


def test_a_pair_for_another_name_is_served_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mount(tmp_path, pair_for("elsewhere.example"))
    assert open_tls(own(tmp_path)) is not None
    assert "is for elsewhere.example and not for SITE_DOMAIN, traces.example.org" in caplog.text


@pytest.mark.parametrize("kind", BROKEN)
def test_a_pair_that_cannot_be_served_is_refused_by_its_fault(tmp_path: Path, kind: str) -> None:
    mount(tmp_path, broken(kind, DOMAIN))
    with pytest.raises(BadPair, match=kind):
        open_tls(own(tmp_path))


def test_a_file_that_is_not_there_or_no_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadPair, match=r"tls\.crt does not exist\. Put it there"):
        open_tls(own(tmp_path))
    mount(tmp_path, pair_for(DOMAIN))
    (tmp_path / "tls.key").write_bytes(b"x" * 300_000)
    with pytest.raises(BadPair, match=r"tls\.key is larger than 262144 bytes"):
        open_tls(own(tmp_path))


@pytest.mark.parametrize("env", [{}, {"SITE_DOMAIN": DOMAIN, "TLS_MODE": "upstream"}])
def test_without_a_name_or_behind_a_terminator_the_process_does_no_tls(env: dict[str, str]) -> None:
    assert open_tls(read_settings(env)) is None
