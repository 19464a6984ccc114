"""Laws of the support bundle: what helps is in it, and nothing that was said or is secret."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from svc.commands.support_bundle import kinds_of_errors, shown_settings
from tests.forked import ran
from tests.service import TRACE_SVC, Service
from tests.wire import request, span

PLANTED = "PLANTED-0815"
SECRETS = {
    "SVC_BACKUP_PASSPHRASE": f"{PLANTED} passphrase",
    "SVC_OBSERVER_ENCODER_API_KEY": f"{PLANTED}-key",
    "SVC_OBSERVER_ENCODER_URL": f"https://user:{PLANTED}@encoder.example.org/v1?token={PLANTED}",
    "ACME_EMAIL": f"{PLANTED}@example.org",
}


def bundled(service: Service, path: Path) -> dict[str, str]:
    """Every part of the bundle of a running service."""
    done = ran(
        [TRACE_SVC, "support-bundle", str(path)],
        env={**service.env, **SECRETS, "SVC_HTTP_BIND": f"127.0.0.1:{service.port}"},
        timeout_s=90,
    )
    assert done.returncode == 0, done.stderr
    assert PLANTED not in done.stdout + done.stderr
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive.getmembers():
            opened = archive.extractfile(entry)
            assert opened is not None
            found[entry.name.partition("/")[2]] = opened.read().decode()
        return found


def test_what_was_said_and_what_is_secret_is_in_no_part_of_it(service: Service, tmp_path: Path) -> None:
    said = [{"role": "user", "parts": [{"type": "text", "content": f"{PLANTED} in a message"}]}]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": said,
        "session.id": f"{PLANTED}-session",
        "user.id": f"{PLANTED}-user",
        "gen_ai.request.model": f"{PLANTED}-model",
        "svc.call_site.id": f"{PLANTED}-site",
    }
    body = request(span(f"{PLANTED} name", attributes, trace_id=b"b" * 16)).SerializeToString()
    assert service.send(body).status_code == 200
    service.wait_for_spans(1, name=f"{PLANTED} name")
    # A question that names it, and a request that is refused for what it says.
    service.ask("count", {"dataset": "spans", "filters": {"session_id": f"{PLANTED}-session"}})
    assert service.send(f"{PLANTED} is no protobuf".encode()).status_code == 400
    parts = bundled(service, tmp_path / "bundle.tar.gz")
    for name, text in parts.items():
        for secret in (PLANTED, service.write_key, service.query_key, service.write_key[:14]):
            assert secret not in text, name
    assert (tmp_path / "bundle.tar.gz").stat().st_mode & 0o777 == 0o600
    assert parts.keys() == {
        *("versions.json", "settings.json", "doctor.txt", "health.json", "metrics.txt"),
        *("database.json", "sizes.json", "plans.txt", "database-errors.txt"),
    }
    # And what helps is in it.
    settings = json.loads(parts["settings.json"])
    assert settings["SVC_BACKUP_PASSPHRASE"] == "(set)"
    assert settings["SVC_OBSERVER_ENCODER_URL"] == "https://encoder.example.org/v1?…"
    assert json.loads(parts["health.json"])["components"]["ingest"]["details"]["mode"] == "memory"
    assert "svc_ingest_stored_spans_total" in parts["metrics.txt"]
    assert json.loads(parts["sizes.json"])["tables"]["span"] > 0
    assert "newest traces" in parts["plans.txt"]
    assert "Index Scan" in parts["plans.txt"]
    assert json.loads(parts["database.json"])["version"].startswith("PostgreSQL")


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, service: Service) -> None:
    path = tmp_path / "mine.tar.gz"
    path.write_text("mine")
    done = ran([TRACE_SVC, "support-bundle", str(path)], env=service.env, timeout_s=60)
    assert done.returncode == 1
    assert "already exists" in done.stderr
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"last_error": f"ValueError: {PLANTED}"}, {"last_error": "ValueError"}),
        ({"a": [{"waiting_for": f"the spool cannot be written: {PLANTED}"}]},
         {"a": [{"waiting_for": "the spool cannot be written"}]}),
        ({"crashes": 3, "state": "running"}, {"crashes": 3, "state": "running"}),
    ],
)  # fmt: skip
def test_texts_of_errors_are_cut_to_their_kind(said: object, kept: object) -> None:
    assert kinds_of_errors(said) == kept


def test_a_setting_that_is_not_set_is_not_told() -> None:
    assert shown_settings(
        {"SVC_DATA_DIR": "/data", "DB_PASSWORD": "x", "OTHER": "y", "SVC_JDBC_URL": ""}
    ) == {
        "SVC_DATA_DIR": "/data",
        "DB_PASSWORD": "(set)",
    }
