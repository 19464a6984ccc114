"""The list of outbound connections is complete: no module that can connect is missing from it."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

from svc.commands.outbound import outbound
from svc.config.table import read_settings
from tests.test_house import HERE

#: What a module must import to reach another host.
CLIENTS = {
    *("svc.outside.http", "httpx2", "httpcore2", "confluent_kafka"),
    *("urllib.request", "http.client", "requests", "aiohttp", "acme.client", "obstore"),
}
#: They speak to this very service; the client itself; the wiring that hands it out.
NO_DESTINATION = {
    "svc/commands/demo.py",
    "svc/commands/doctor.py",
    "svc/commands/own_service.py",
    "svc/commands/restart.py",
    "svc/commands/support_bundle.py",
    "svc/outside/http.py",
    "svc/application/alert_dispatcher.py",
    "svc/wiring/people.py",
    "svc/wiring/runner.py",
}


def test_every_module_that_can_connect_is_in_the_list() -> None:
    patterns = {pattern for line in outbound(read_settings({})) for pattern in line.modules}
    able = {path for path, names in HERE.imports.items() if names & CLIENTS}
    unlisted = {path for path in able if not any(fnmatch(path, pattern) for pattern in patterns)}
    assert unlisted <= NO_DESTINATION, "name it in svc/commands/outbound.py"
    for pattern in patterns:
        assert any(fnmatch(path, pattern) for path in HERE.modules), pattern


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({}, "heartbeat: heartbeat.trace-svc.example"),
        ({"SVC_TELEMETRY_ENABLED": "false"}, "heartbeat: none"),
        ({"DB_HOST": "db.example.org"}, "database: db.example.org:5432"),
        ({"SVC_INGEST_SPOOL_MODE": "kafka"}, "brokers: localhost:9092"),
        ({}, "certificates: none, only in TLS_MODE=acme"),
        (
            {"SITE_DOMAIN": "t.example.org", "ACME_EMAIL": "me@example.org"},
            "certificates: acme-v02.api.letsencrypt.org, for a new certificate",
        ),
        ({}, "sandbox runner: a child of this process"),
        ({"SVC_HTTP_BIND": "0.0.0.0:8000"}, "sandbox runner: http://sandbox-runner:8080"),
        ({"CLOUD_REGION": "eu-central-1"}, "agents' model: the integration that a project chose, else cloud"),
        ({}, "alerts: the channels that people have added, when a rule tells something; besides public"),
        ({"SVC_HTTP_BIND": "0.0.0.0:8000"}, "alerts: the channels that people have added"),
        ({}, "mail server: none, SVC_SMTP_URL names none"),
        ({"SVC_SMTP_URL": "smtps://ann:planted@mail.example.org"}, "mail server: mail.example.org"),
        ({}, "encoder: none, no encoder service is set"),
        ({}, "backups: none, no SVC_BACKUP_S3_URL is set"),
        ({"SVC_BACKUP_S3_URL": "s3://mine/one"}, "backups: s3://mine/one at S3 of AWS, after each nightly"),
        (
            {"SVC_BACKUP_S3_URL": "s3://mine/one", "SVC_BACKUP_S3_ENDPOINT": "https://minio.lan:9000"},
            "backups: s3://mine/one at minio.lan, after each nightly backup",
        ),
        (
            {"SVC_OBSERVER_ENCODER_URL": "http://encoder.lan:9"},
            "encoder: encoder.lan, texts of each new trace",
        ),
    ],
)
def test_it_tells_what_these_settings_reach(env: dict[str, str], told: str) -> None:
    assert any(line.sentence().startswith(told) for line in outbound(read_settings(env)))


def test_nothing_of_a_database_url_but_its_host_is_told() -> None:
    env = {"SVC_JDBC_URL": "postgresql://user:planted@db.example.org/x", "DB_PASSWORD": "planted"}
    env |= {"SVC_SMTP_URL": "smtps://planted:planted@mail.example.org"}
    assert "planted" not in "".join(line.sentence() for line in outbound(read_settings(env)))
