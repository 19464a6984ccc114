"""Every connection that the process may open to another host, for `trace-svc doctor` and for reviewers.

A new client of another system gets a line here; a test compares the list with the code that can connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from urllib.parse import urlsplit

import attrs

from protocol.database_address import shown
from svc.application.addresses import alert_networks, integration_networks, runner_url
from svc.application.open_store import served_address
from svc.config.table import Settings
from svc.wiring.runner import surrounding


@attrs.frozen
class Outbound:
    """One destination: what for, where, when, and the modules that connect (a pattern)."""

    purpose: str
    address: str
    when: str
    modules: tuple[str, ...]

    def sentence(self) -> str:
        """The line of `doctor`."""
        return f"{self.purpose}: {self.address}, {self.when}"


def _near(networks: Sequence[IPv4Network | IPv6Network]) -> str:
    """Which addresses near by integrations may lead to, said aloud."""
    if not networks:
        return "no private ones (SVC_INTEGRATION_ALLOWED_NETWORKS opens them)"
    return "also those of " + " ".join(str(network) for network in networks)


def _acme(settings: Settings) -> bool:
    return settings.does_tls and settings.tls_mode == "acme"


def _model(settings: Settings) -> str:
    """Whom agents ask where a project chose nobody."""
    provider = surrounding(settings).ambient
    return "the integration that a project chose" + ("" if provider is None else f", else {provider}")


def _of_agents(settings: Settings) -> list[Outbound]:
    """Where runs of agents lead."""
    hosted = settings.sandbox_backend == "hosted" and settings.sandbox_hosted_key is not None
    return [
        Outbound(
            "sandbox runner",
            runner_url(settings) or "a child of this process",
            "when somebody has an agent run",
            ("svc/outside/runner.py", "svc/outside/mcp.py"),
        ),
        Outbound(
            "agents' model",
            _model(settings),
            "by the runner, while an agent runs: what it reads of the project",
            ("svc/outside/models/*.py",),
        ),
        Outbound(
            "container engine",
            str(settings.sandbox_engine) if settings.sandbox_backend == "container" else "none",
            "by the runner, over its socket; it pulls SANDBOX_IMAGE at the first script",
            ("svc/outside/engine.py",),
        ),
        Outbound(
            "host of microVMs",
            str(urlsplit(settings.sandbox_hosted_url or "").hostname) if hosted else "none",
            "by the runner, for scripts: what a run has read; its machines are asked by their own names",
            ("svc/outside/microvms.py",),
        ),
        Outbound(
            "repository",
            "the one that a project names for its agents",
            "by the runner, while an agent looks for a cause; it is read and never written",
            ("svc/outside/git.py", "svc/runner/repository.py"),
        ),
    ]


def _of_moving(settings: Settings) -> list[Outbound]:
    """Where whoever moves in or compares lets it lead."""
    tee = settings.tee_endpoint
    return [
        Outbound(
            "tee",
            str(urlsplit(tee).hostname) if tee else "none",
            "everything that ingest accepts" if tee else "no SVC_TEE_ENDPOINT is set",
            ("svc/outside/tee.py",),
        ),
        Outbound(
            "imports",
            "the address that `trace-svc import` is given",
            "while that command runs",
            ("svc/outside/history.py",),
        ),
    ]


def _of_backups(settings: Settings) -> Outbound:
    """Where copies of backups are."""
    url, endpoint = settings.backup_s3_url, settings.backup_s3_endpoint
    store = "S3 of AWS" if endpoint is None else str(urlsplit(endpoint).hostname)
    return Outbound(
        "backups",
        "none" if url is None else f"{url} at {store}",
        "no SVC_BACKUP_S3_URL is set; `trace-svc backup push` and `fetch` connect to what they are given"
        if url is None
        else "after each nightly backup, and while `trace-svc backup` and `restore` use it",
        ("svc/outside/objects.py",),
    )


def _of_people(settings: Settings) -> list[Outbound]:
    """Where whoever connects an assistant lets it lead."""
    return [
        Outbound(
            "descriptions of assistants",
            "the addresses by which they name themselves" if settings.mcp_oauth else "none",
            "when somebody is asked to let one read; only public addresses"
            if settings.mcp_oauth
            else "SVC_MCP_OAUTH is not set",
            ("svc/outside/client_documents.py",),
        ),
    ]


def _of_alerts(settings: Settings) -> list[Outbound]:
    """Where alerts lead."""
    near = " ".join(str(network) for network in alert_networks(settings))
    also = f"also those of {near}" if near else "no private ones (SVC_ALERT_ALLOWED_NETWORKS opens them)"
    server = None if settings.smtp_url is None else urlsplit(settings.smtp_url).hostname
    return [
        Outbound(
            "alerts",
            "the channels that people have added",
            f"when a rule tells something; besides public addresses {also}",
            ("svc/outside/alerts.py",),
        ),
        Outbound(
            "mail server",
            server or "none",
            "for alerts by mail" if server else "SVC_SMTP_URL names none",
            ("svc/outside/smtp.py",),
        ),
    ]


def outbound(settings: Settings) -> list[Outbound]:
    """All destinations, with what they are under these settings; those in no use say so."""
    database = served_address(settings)
    beats = settings.telemetry_enabled
    return [
        Outbound(
            "heartbeat",
            str(urlsplit(settings.telemetry_url).hostname) if beats else "none",
            "once at the start and every 24 hours; SVC_TELEMETRY_ENABLED=false turns it off"
            if beats
            else "turned off, its host is never resolved",
            ("svc/outside/heartbeat.py",),
        ),
        Outbound(
            "database",
            "none" if database is None else shown(database.hosts),
            "embedded, over a Unix socket" if database is None else "all the time",
            ("svc/store/postgres/servers.py",),
        ),
        Outbound(
            "certificates",
            str(urlsplit(settings.acme_directory_url).hostname) if _acme(settings) else "none",
            "for a new certificate, and every 6 hours to hear when it wants one"
            if _acme(settings)
            else "only in TLS_MODE=acme with a SITE_DOMAIN",
            ("svc/outside/acme.py",),
        ),
        Outbound(
            "brokers",
            settings.kafka_bootstrap_servers if settings.spool_mode == "kafka" else "none",
            "all the time" if settings.spool_mode == "kafka" else "only in kafka mode",
            ("svc/outside/kafka*.py",),
        ),
        Outbound(
            "sign-in",
            str(urlsplit(settings.sso_issuer_url).hostname) if settings.sso_issuer_url else "none",
            "when somebody signs in there" if settings.sso_issuer_url else "no identity provider is set",
            ("svc/outside/oidc.py",),
        ),
        Outbound(
            "encoder",
            str(urlsplit(settings.encoder_url).hostname) if settings.encoder_url else "none",
            "texts of each new trace" if settings.encoder_url else "no encoder service is set",
            ("svc/outside/encoder.py", "svc/detecting/encoded.py"),
        ),
        *_of_agents(settings),
        *_of_people(settings),
        *_of_alerts(settings),
        Outbound(
            "integrations",
            "the model providers and Git hosts that you have entered",
            "when you test one; besides public addresses " + _near(integration_networks(settings)),
            ("svc/outside/reach.py",),
        ),
        *_of_moving(settings),
        _of_backups(settings),
    ]
