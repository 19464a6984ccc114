"""The settings: one table with every environment variable, its type, default, unit and sentence.

`Settings` *is* the table. The README's table, `trace-svc serve --help` (`svc.config.text`) and the boot
checks (`svc.config.checks`) are made from it. Read once at the start by the command line; nobody else looks
at the environment.

Secrets: values of settings marked secret are never printed, neither by errors nor by `doctor`.
"""

from __future__ import annotations

import os
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping
from datetime import time
from pathlib import Path
from typing import Any, Final

import attrs
import environ

from protocol.operator import OperatorError
from svc.config.profile import PROFILE, with_profile
from svc.config.types import (
    BASE_PATH,
    BIND,
    BOOLEAN,
    BROKERS,
    BYTES,
    BYTES_OR_NONE,
    CLOCK,
    COUNT,
    COUNT_OR_NONE,
    DAYS,
    DB_URL,
    DIRECTORY_URL,
    ENDPOINT,
    FILE,
    FOLDER,
    HEADERS,
    HEARTBEAT_URL,
    HOSTNAME,
    KEYS32,
    MAIL_ADDRESS,
    MAIL_URL,
    NETWORKS,
    OPTIONAL,
    OPTIONAL_NETWORKS,
    OWN_KEY,
    OWN_PASSWORD,
    PASSPHRASE,
    PER_MONTH,
    PORT,
    PROGRAM,
    S3_URL,
    SECONDS,
    TEXT,
    WEB_URL,
    Type,
    integer,
    one_of,
)

#: Shipped in public, so worth nothing: a start with a public name refuses to run on them (spec, 11).
PLACEHOLDER_SECRET_KEY: Final = "cHVibGlzaGVkLXBsYWNlaG9sZGVyLWNoYW5nZS1tZSE="  # noqa: S105
PLACEHOLDER_COOKIE_PASSWORD: Final = "published-placeholder-cookie-password"  # noqa: S105

#: Where HTTP is served when nothing says so.
DEFAULT_BIND: Final = "127.0.0.1:8000"
_MIB: Final = 1024 * 1024
_ROW: Final = "trace-svc setting"


class BadSetting(OperatorError):
    """A value that cannot be read. The text names the variable, the value and what was expected."""


@attrs.frozen
class Row:
    """One row of the table, as the README prints it."""

    name: str
    type: str
    default: str
    unit: str
    sentence: str
    secret: bool


def setting(
    name: str,
    type_: Type,
    default: str,
    sentence: str,
    *,
    unit: str = "",
    shown: str | None = None,
    secret: bool = False,
) -> Any:
    """One row of the table: an attrs field read from the environment variable `name`.

    `default` is written as it would stand in the environment; `shown` replaces it in the documentation
    where the real default depends on the machine.
    """

    def read(raw: str) -> Any:
        # A compose file passes on what nobody set as blank.
        text = raw.strip() or default
        try:
            return type_.read(text)
        except RuntimeError:
            # Of `~`, where neither HOME nor the system's accounts know what it stands for.
            raise BadSetting(
                f"{name} is {text!r}, and this account has no home folder. Set HOME, or set {name} to an"
                " absolute path"
            ) from None
        except (ValueError, KeyError, Base64Error):
            value = "(its value is not shown)" if secret else repr(raw)
            raise BadSetting(f"{name} is {value}; expected {type_.expected}") from None

    field = environ.var(default=default, converter=read, name=name, help=sentence)
    field.metadata[_ROW] = Row(
        name, type_.label, (default or "blank") if shown is None else shown, unit, sentence, secret
    )
    return field


def default_data_dir() -> str:
    """Where data lives when nobody says: a system folder for root, the user's own otherwise."""
    return "/var/lib/trace-svc" if os.geteuid() == 0 else "~/.local/share/trace-svc"


def default_decoders() -> str:
    """As many as there are cores: they give way to the doors. A machine with a single one runs none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return str(min(cores, 4) if cores > 1 else 0)


@environ.config(prefix="", frozen=True)
class Settings:
    """Every setting of the service. Fields stand in the order in which the README lists them."""

    http_bind: tuple[str, int] = setting(
        "SVC_HTTP_BIND", BIND, DEFAULT_BIND, "Address of the HTTP server. gRPC listens on the same host."
    )
    https_bind: tuple[str, int] = setting(
        "SVC_HTTPS_BIND",
        BIND,
        "127.0.0.1:8443",
        "Address of the HTTPS server, if this process terminates TLS.",
    )
    data_dir: Path = setting(
        "SVC_DATA_DIR",
        FOLDER,
        default_data_dir(),
        "Folder for the embedded database and everything else the service keeps.",
        shown="~/.local/share/trace-svc, for root /var/lib/trace-svc",
    )
    profile: str = setting(
        PROFILE,
        one_of("standard", "small"),
        "standard",
        "How much memory the service plans with. `small` has fewer processes and connections, and less may "
        "wait or be sent at once.",
    )
    log_level: str = setting(
        "SVC_LOG_LEVEL", one_of("debug", "info", "warning", "error"), "info", "Lowest level to log."
    )
    log_format: str = setting(
        "SVC_LOG_FORMAT",
        one_of("text", "json"),
        "text",
        "Format of log lines: `text` is `key=value`, with colours on a terminal; `json` is one JSON "
        "object per line.",
    )
    shutdown_drain_s: float = setting(
        "SVC_SHUTDOWN_DRAIN_SECONDS",
        SECONDS,
        "25",
        "How long a shutdown waits at most for open requests and for the spool to empty.",
        unit="s",
    )

    prices_file: Path | None = setting(
        "SVC_PRICES_FILE",
        FILE,
        "",
        "TOML file with your own prices. They override the built-in price book. Read again on SIGHUP.",
    )

    transport: str = setting(
        "SVC_INGEST_OTLP_TRANSPORT",
        one_of("HTTP", "GRPC", "BOTH"),
        "HTTP",
        "Which OTLP transports accept spans.",
    )
    grpc_port: int = setting("SVC_INGEST_OTLP_GRPC_PORT", PORT, "4317", "Port of the gRPC server.")
    genai_events: bool = setting(
        "SVC_INGEST_GENAI_EVENTS",
        BOOLEAN,
        "false",
        "Accept OTLP logs: events of Claude Code, Codex and Gemini CLI become spans, messages in GenAI "
        "events become steps of their span, evaluation results become feedback. Other log records, and "
        "metrics, are dropped and counted.",
    )
    max_body_bytes: int = setting(
        "SVC_INGEST_MAX_BODY_BYTES",
        BYTES,
        str(64 * _MIB),
        "Largest body of an ingest request, both compressed and decompressed.",
        unit="bytes",
    )
    spool_mode: str = setting(
        "SVC_INGEST_SPOOL_MODE",
        one_of("memory", "disk", "kafka"),
        "memory",
        "Where accepted batches wait for the database: in memory, on the local disk, or in a "
        "Kafka-compatible broker.",
    )
    spool_max_bytes: int = setting(
        "SVC_INGEST_SPOOL_MAX_BYTES",
        BYTES,
        str(128 * _MIB),
        "Budget for accepted batches that are not stored yet. When it is full, ingest answers 503.",
        unit="bytes",
    )
    spool_disk_max_bytes: int = setting(
        "SVC_INGEST_SPOOL_DISK_MAX_BYTES",
        BYTES,
        str(4096 * _MIB),
        "Budget on disk in disk mode. `SVC_INGEST_SPOOL_MAX_BYTES` then limits what is also kept in memory.",
        unit="bytes",
    )
    spool_max_lag_ms: int = setting(
        "SVC_INGEST_SPOOL_MAX_LAG_MS",
        integer(0, 10**12),
        "300000",
        "Health reports DOWN when the oldest waiting batch is older than this. 0 turns the check off.",
        unit="ms",
    )
    max_spans: int = setting(
        "SVC_INGEST_MAX_SPANS", COUNT, "65536", "Most spans in one body. A larger body is answered with 413."
    )
    max_groups: int = setting(
        "SVC_INGEST_MAX_GROUPS", COUNT, "65536", "Most `resource_spans` and `scope_spans` in one body."
    )
    max_entries: int = setting(
        "SVC_INGEST_MAX_ENTRIES",
        COUNT,
        "2000000",
        "Most attributes, events and links over all spans of one body, including values nested in its "
        "long spans.",
    )
    max_span_attributes: int = setting(
        "SVC_INGEST_MAX_SPAN_ATTRIBUTES",
        COUNT,
        "20000",
        "Most attributes on one span, event, link, resource or scope.",
    )
    max_span_events: int = setting("SVC_INGEST_MAX_SPAN_EVENTS", COUNT, "2000", "Most events on one span.")
    max_span_links: int = setting("SVC_INGEST_MAX_SPAN_LINKS", COUNT, "2000", "Most links on one span.")
    max_span_values: int = setting(
        "SVC_INGEST_MAX_SPAN_VALUES",
        COUNT,
        "500000",
        "Most attributes, events, links and nested values on one span.",
    )
    max_depth: int = setting(
        "SVC_INGEST_MAX_DEPTH", integer(1, 64), "64", "How deep arrays and maps may be nested in a value."
    )
    quota_trace_spans: int = setting(
        "SVC_QUOTA_TRACE_SPANS",
        COUNT_OR_NONE,
        "5000000",
        "Most spans that a project may send for one trace. Each copy of the service counts from its "
        "start. Spans over the quota are rejected one by one. 0: no quota.",
    )
    quota_names_per_day: int = setting(
        "SVC_QUOTA_NAMES_PER_DAY",
        COUNT_OR_NONE,
        "100000",
        "Most distinct span names that a project may send in one day (UTC). Each copy of the service "
        "counts from its start. Spans with further names are rejected one by one. 0: no quota.",
    )
    quota_key_bytes_per_minute: int = setting(
        "SVC_QUOTA_KEY_BYTES_PER_MINUTE",
        BYTES_OR_NONE,
        str(16 << 30),
        "Most bytes that one key may send in a minute, as transferred. A body over the quota is answered"
        " with 429 and `Retry-After`. 0: no quota.",
        unit="bytes",
    )
    drainers: int = setting(
        "SVC_INGEST_DRAINERS",
        integer(1, 16),
        "2",
        "Drainers in memory and disk mode. There is always at least one more than there are decoders; "
        "Settings → Health shows the number.",
    )
    decoders: int = setting(
        "SVC_INGEST_DECODERS",
        integer(0, 32),
        default_decoders(),
        "Processes that decode and store spans: one is always there, others while there is work for them. "
        "With 0, the main process does it.",
        shown="one per core, at most 4; 0 on a single core",
    )
    compiled_modules: bool = setting(
        "SVC_COMPILED_MODULES",
        BOOLEAN,
        "true",
        "Use the compiled modules if the installation has them. `trace-svc doctor` shows which ones are "
        "used.",
    )
    kafka_consumers: int = setting(
        "SVC_INGEST_SPOOL_KAFKA_CONSUMERS",
        integer(1, 64),
        "4",
        "Drainers in kafka mode. More than 8 do not help.",
    )
    kafka_bootstrap_servers: str = setting(
        "SVC_INGEST_SPOOL_KAFKA_BOOTSTRAP_SERVERS", BROKERS, "localhost:9092", "Brokers in kafka mode."
    )
    kafka_replication_factor: int = setting(
        "SVC_INGEST_SPOOL_KAFKA_REPLICATION_FACTOR",
        integer(1, 9),
        "1",
        "Copies of each message in kafka mode. Above 1, a write waits for two of them.",
    )

    kafka_security_protocol: str = setting(
        "SVC_INGEST_SPOOL_KAFKA_SECURITY_PROTOCOL",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "PLAINTEXT",
        "Protocol to the brokers.",
    )
    kafka_sasl_mechanism: str = setting(
        "SVC_INGEST_SPOOL_KAFKA_SASL_MECHANISM",
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "SCRAM-SHA-512",
        "How the service authenticates to the brokers, for the SASL protocols.",
    )
    kafka_user: str | None = setting(
        "SVC_INGEST_SPOOL_KAFKA_USER", OPTIONAL, "", "User name at the brokers, for the SASL protocols."
    )
    kafka_password: str | None = setting(
        "SVC_INGEST_SPOOL_KAFKA_PASSWORD", OPTIONAL, "", "Password at the brokers.", secret=True
    )
    kafka_ca_file: Path | None = setting(
        "SVC_INGEST_SPOOL_KAFKA_CA_FILE", FILE, "", "PEM file with the certificate authority of the brokers.",
        shown="the system's certificate authorities",
    )  # fmt: skip

    tee_endpoint: str | None = setting(
        "SVC_TEE_ENDPOINT",
        WEB_URL,
        "",
        "Second address for all accepted spans (OTLP over HTTP), to compare this service with another one.",
    )
    tee_headers: tuple[tuple[str, str], ...] = setting(
        "SVC_TEE_HEADERS",
        HEADERS,
        "",
        "Headers for that endpoint, such as `authorization=Bearer%20KEY`.",
        secret=True,
    )
    tee_max_bytes: int = setting(
        "SVC_TEE_MAX_BYTES",
        BYTES,
        str(32 * _MIB),
        "How much may wait in memory for that endpoint. Beyond it, spans are stored but not forwarded, "
        "and counted.",
        unit="bytes",
    )

    jdbc_url: str | None = setting(
        "SVC_JDBC_URL",
        DB_URL,
        "",
        "URL of your own PostgreSQL, used in place of the embedded one. It may contain user and password, "
        "and several servers of a cluster that fails over: "
        "`jdbc:postgresql://a:5432,b:5432/db?targetServerType=primary`.",
        secret=True,
    )
    db_host: str | None = setting(
        "DB_HOST", OPTIONAL, "", "Host of your own PostgreSQL. Blank: the embedded one."
    )
    db_port: int = setting("DB_PORT", PORT, "5432", "Port of your own PostgreSQL.")
    db_name: str = setting("DB_NAME", TEXT, "trace_svc", "Name of the database.")
    db_user: str = setting("DB_USER", TEXT, "trace_svc", "User of the database.")
    db_password: str = setting("DB_PASSWORD", TEXT, "trace_svc", "Password of the database.", secret=True)
    read_url: str | None = setting(
        "SVC_READ_URL",
        DB_URL,
        "",
        "Streaming replica of your own PostgreSQL. Queries, MCP tools and pages read spans and traces "
        "from it.",
        secret=True,
    )
    read_max_lag_s: float = setting(
        "SVC_READ_MAX_LAG_SECONDS",
        SECONDS,
        "5",
        "A replica that is further behind than this is not used.",
        unit="s",
    )
    db_data_dir: str = setting(
        "DB_DATA_DIR",
        TEXT,
        "trace-svc-db",
        "Compose only: a plain name is a named volume, a path is a host folder.",
    )

    trace_ttl_days: int = setting(
        "SVC_RETENTION_TRACE_TTL_DAYS", DAYS, "90", "How long traces are kept. 0 keeps them forever.",
        unit="days",
    )  # fmt: skip
    detection_ttl_days: int = setting(
        "SVC_RETENTION_DETECTION_TTL_DAYS", DAYS, "90", "How long detections are kept. 0 keeps them forever.",
        unit="days",
    )  # fmt: skip
    retention_enabled: bool = setting(
        "SVC_RETENTION_ENABLED", BOOLEAN, "true", "Let the hourly retention job delete what has expired."
    )

    backup_dir: Path | None = setting(
        "SVC_BACKUP_DIR", FILE, "", "Folder for nightly backups. Blank: no nightly backup."
    )
    backup_at: time = setting("SVC_BACKUP_AT", CLOCK, "03:10", "When the nightly backup starts, in UTC.")
    backup_physical: bool = setting(
        "SVC_BACKUP_PHYSICAL",
        BOOLEAN,
        "false",
        "Let the nightly backup copy the files of the embedded database, like `backup --physical`.",
    )
    backup_wal_s: int = setting(
        "SVC_BACKUP_WAL_SECONDS",
        integer(0, 86_400),
        "0",
        "How often the write-ahead log of the embedded database is copied to the folder, so that "
        "`restore --until` can bring back any moment. Needs physical backups. 0 switches it off.",
        unit="s",
    )
    backup_keep: int = setting(
        "SVC_BACKUP_KEEP",
        integer(0, 10_000),
        "14",
        "How many backups to keep. 0 keeps all of them.",
    )
    backup_passphrase: str | None = setting(
        "SVC_BACKUP_PASSPHRASE",
        PASSPHRASE,
        "",
        "Encrypts the secrets in a backup. Without it, backups contain no secrets.",
        secret=True,
    )
    backup_s3_url: str | None = setting(
        "SVC_BACKUP_S3_URL",
        S3_URL,
        "",
        "Bucket and prefix, `s3://bucket/prefix`, to which each nightly backup is copied. Every instance "
        "needs a prefix of its own.",
    )
    backup_s3_endpoint: str | None = setting(
        "SVC_BACKUP_S3_ENDPOINT",
        ENDPOINT,
        "",
        "Address of an S3-compatible store that is not AWS, such as `https://minio.example.org:9000`.",
    )
    backup_s3_ca_file: Path | None = setting(
        "SVC_BACKUP_S3_CA_FILE", FILE, "", "PEM file with the certificate authority of that store.",
        shown="the system's certificate authorities",
    )  # fmt: skip
    backup_s3_access_key_id: str | None = setting(
        "SVC_BACKUP_S3_ACCESS_KEY_ID",
        OPTIONAL,
        "",
        "Access key of that store.",
        shown="`AWS_ACCESS_KEY_ID`, else the role of the machine",
    )
    backup_s3_secret_access_key: str | None = setting(
        "SVC_BACKUP_S3_SECRET_ACCESS_KEY",
        OPTIONAL,
        "",
        "Secret key of that access key.",
        shown="`AWS_SECRET_ACCESS_KEY`",
        secret=True,
    )
    aws_region: str | None = setting(
        "AWS_REGION", OPTIONAL, "", "Region of the bucket for backups.", shown="us-east-1"
    )

    disk_budget_bytes: int = setting(
        "SVC_DISK_BUDGET_BYTES",
        integer(0, 2**60),
        "0",
        "How much disk the database, its log and the spool may use. Close to the limit, the oldest days "
        "are deleted. 0: no limit.",
        unit="bytes",
    )

    questions_per_key: int = setting(
        "SVC_QUESTIONS_PER_KEY",
        integer(1, 64),
        "4",
        "How many queries, tool calls and settings requests one key, or one signed-in person, may run at"
        " once. Any more are answered with 429.",
    )

    secret_key: bytes = setting(
        "SVC_SECRET_KEY",
        OWN_KEY,
        PLACEHOLDER_SECRET_KEY,
        "AES-256-GCM key that encrypts stored secrets. A local start creates its own in "
        "`SVC_DATA_DIR/secrets`.",
        shown="published placeholder",
        secret=True,
    )
    secret_key_previous: tuple[bytes, ...] = setting(
        "SVC_SECRET_KEY_PREVIOUS",
        KEYS32,
        "",
        "Earlier encryption keys, to read values that were stored with them.",
        secret=True,
    )
    cookie_password: str = setting(
        "SVC_AUTH_COOKIE_PASSWORD",
        OWN_PASSWORD,
        PLACEHOLDER_COOKIE_PASSWORD,
        "Key of the session cookie. A local start creates its own in `SVC_DATA_DIR/secrets`.",
        shown="published placeholder",
        secret=True,
    )
    auth_disabled: bool = setting(
        "SVC_AUTH_DISABLED",
        BOOLEAN,
        "false",
        "Single-user mode: everyone who can reach the service owns it, and `/mcp` is off.",
    )
    mcp_extensions: bool = setting(
        "SVC_MCP_EXTENSIONS",
        BOOLEAN,
        "true",
        "Offer MCP tools and arguments beyond the published interface. With false, MCP lists exactly the"
        " published ones.",
    )
    mcp_oauth: bool = setting(
        "SVC_MCP_OAUTH",
        BOOLEAN,
        "false",
        "Let assistants connect to MCP with OAuth, after somebody approved them. Without it, they need a"
        " key.",
    )
    auth_passwords: bool = setting(
        "SVC_AUTH_PASSWORDS",
        BOOLEAN,
        "true",
        "Let people sign up and sign in with a password. With false, only the identity provider signs "
        "people in.",
    )
    auth_tries_per_address: int = setting(
        "SVC_AUTH_TRIES_PER_ADDRESS",
        integer(0, 10**6),
        "30",
        "How many times one client address may try to sign in or sign up within the window. 0: no limit.",
    )
    auth_tries_per_account: int = setting(
        "SVC_AUTH_TRIES_PER_ACCOUNT",
        integer(0, 10**6),
        "10",
        "How many failed sign-ins an account may have from one address within the window. 0: no limit.",
    )
    auth_tries_per_account_anywhere: int = setting(
        "SVC_AUTH_TRIES_PER_ACCOUNT_ANYWHERE",
        integer(0, 10**6),
        "100",
        "How many failed sign-ins an account may have from all unfamiliar addresses together within the "
        "window. 0: no limit.",
    )
    auth_known_address_days: int = setting(
        "SVC_AUTH_KNOWN_ADDRESS_DAYS",
        integer(0, 365),
        "30",
        "How long an address stays familiar after somebody signed in from it. Failed sign-ins from "
        "elsewhere do not lock it out.",
        unit="days",
    )
    auth_tries_window_s: float = setting(
        "SVC_AUTH_TRIES_WINDOW_SECONDS",
        SECONDS,
        "300",
        "Length of the window for the limits above.",
        unit="s",
    )
    frontend_url: str | None = setting(
        "SVC_AUTH_FRONTEND_URL",
        WEB_URL,
        "",
        "Where people land after signing in. Derived from `SITE_DOMAIN`, else from `HTTP_PORT`.",
        shown="derived",
    )
    sso_api_key: str | None = setting(
        "SSO_API_KEY", OPTIONAL, "", "Client secret at your identity provider.", secret=True
    )
    sso_client_id: str | None = setting("SSO_CLIENT_ID", OPTIONAL, "", "Client id at your identity provider.")
    sso_issuer_url: str | None = setting(
        "SSO_ISSUER_URL",
        WEB_URL,
        "",
        "Issuer URL of your identity provider (OpenID Connect). Needs the two above.",
    )
    sso_redirect_uri: str | None = setting(
        "SSO_REDIRECT_URI",
        WEB_URL,
        "",
        "Where the identity provider sends people back. Derived from `SITE_DOMAIN`.",
        shown="derived",
    )

    site_domain: str | None = setting(
        "SITE_DOMAIN",
        HOSTNAME,
        "",
        "Public host name, without a scheme. If unset, the service speaks plain HTTP only.",
    )
    base_path: str = setting(
        "SVC_BASE_PATH",
        BASE_PATH,
        "",
        "Path under which a reverse proxy publishes the service, such as `/traces`. The proxy may strip "
        "it or pass it on.",
    )
    tls_mode: str = setting(
        "TLS_MODE", one_of("acme", "owncert", "upstream"), "acme", "Where TLS ends when `SITE_DOMAIN` is set."
    )
    certs_dir: Path = setting(
        "SVC_CERTS_DIR",
        FOLDER,
        "/certs",
        "Folder with `tls.crt` and `tls.key` for `owncert`. Checked every minute and on SIGHUP.",
    )
    acme_email: str | None = setting(
        "ACME_EMAIL",
        OPTIONAL,
        "",
        "Your e-mail address for the certificate authority. Required with `SITE_DOMAIN` in `acme` mode.",
    )
    acme_directory_url: str = setting(
        "SVC_ACME_DIRECTORY_URL",
        DIRECTORY_URL,
        "https://acme-v02.api.letsencrypt.org/directory",
        "ACME directory of the certificate authority.",
    )
    acme_ca_file: Path | None = setting(
        "SVC_ACME_CA_FILE", FILE, "", "PEM file with the certificate authority of a private ACME server.",
        shown="the system's certificate authorities",
    )  # fmt: skip
    trusted_proxies: tuple[Any, ...] = setting(
        "TRUSTED_PROXIES", NETWORKS, "", "Networks whose forwarded headers are trusted, in `upstream` mode."
    )
    http_port: int = setting("HTTP_PORT", PORT, "80", "Compose only: host port for HTTP.")
    https_port: int = setting("HTTPS_PORT", PORT, "443", "Compose only: host port for HTTPS.")

    telemetry_enabled: bool = setting(
        "SVC_TELEMETRY_ENABLED", BOOLEAN, "true", "Send the anonymous daily heartbeat."
    )
    telemetry_url: str = setting(
        "SVC_TELEMETRY_URL",
        HEARTBEAT_URL,
        "https://heartbeat.trace-svc.example/v1/heartbeat",
        "Where the heartbeat goes.",
    )
    integration_networks: tuple[Any, ...] | None = setting(
        "SVC_INTEGRATION_ALLOWED_NETWORKS",
        OPTIONAL_NETWORKS,
        "",
        "Non-public networks that integrations (model providers, Git hosts) may reach.",
        shown="private and loopback when bound to loopback, else none",
    )
    alert_networks: tuple[Any, ...] | None = setting(
        "SVC_ALERT_ALLOWED_NETWORKS",
        OPTIONAL_NETWORKS,
        "",
        "Non-public networks that alerts may be sent to, over plain HTTP as well.",
        shown="private and loopback when bound to loopback, else none",
    )
    smtp_url: str | None = setting(
        "SVC_SMTP_URL",
        MAIL_URL,
        "",
        "Mail server for alerts: `smtps://user:password@host`, or `smtp://…`, which uses STARTTLS (turn "
        "that off with `?starttls=off`).",
        secret=True,
    )
    smtp_from: str | None = setting(
        "SVC_SMTP_FROM",
        MAIL_ADDRESS,
        "",
        "Sender address of alert mails.",
        shown="trace-svc at the host of `SVC_SMTP_URL`",
    )
    smtp_ca_file: Path | None = setting(
        "SVC_SMTP_CA_FILE", FILE, "", "PEM file with the certificate authority of the mail server.",
        shown="the system's certificate authorities",
    )  # fmt: skip
    cloud_region: str | None = setting(
        "CLOUD_REGION",
        OPTIONAL,
        "",
        "Region of the cloud model service.",
    )
    detectors_interval_s: int = setting(
        "SVC_DETECTORS_INTERVAL_SECONDS",
        integer(1, 86_400),
        "60",
        "How often detectors check what has arrived.",
        unit="s",
    )
    false_alarms_per_month: float = setting(
        "SVC_DETECTORS_FALSE_ALARMS_PER_MONTH",
        PER_MONTH,
        "2",
        "How many false alarms you accept per project and month, over all detectors. With fewer, real "
        "changes are reported later.",
    )
    encoder_url: str | None = setting(
        "SVC_OBSERVER_ENCODER_URL", WEB_URL, "", "Encoder classifier service. Blank in the open edition."
    )
    encoder_api_key: str | None = setting(
        "SVC_OBSERVER_ENCODER_API_KEY", OPTIONAL, "", "Key of the encoder classifier service.", secret=True
    )
    launcher_url: str | None = setting(
        "SVC_OBSERVER_AGENTIC_LAUNCHER_URL",
        WEB_URL,
        "",
        "Sandbox runner for root-cause analysis and triage.",
        shown="a local start runs its own, else http://sandbox-runner:8080",
    )
    mcp_url: str | None = setting(
        "SVC_OBSERVER_AGENTIC_MCP_URL",
        WEB_URL,
        "",
        "Address at which the sandbox runner reaches `/mcp` of this service.",
        shown="the address of `SVC_HTTP_BIND`, else the name of this host",
    )
    runner_key: str | None = setting(
        "SANDBOX_RUNNER_KEY",
        OPTIONAL,
        "",
        "Key shared by the service and its sandbox runner.",
        shown="random for a local start",
        secret=True,
    )
    runner_bind: tuple[str, int] = setting(
        "SANDBOX_RUNNER_BIND", BIND, "0.0.0.0:8080", "Address of the sandbox runner's HTTP server."
    )
    sandbox_backend: str = setting(
        "SANDBOX_BACKEND",
        one_of("container", "hosted", "local"),
        "container",
        "Where agents run scripts: in sibling containers, in hosted microVMs, or with `local`, in an "
        "agent CLI on this host.",
    )
    sandbox_work_volume: str = setting(
        "SANDBOX_WORK_VOLUME",
        TEXT,
        "trace-svc-sandbox-work",
        "Prefix for the volume names of the containers. Each run has a volume of its own, named after "
        "the run.",
    )
    sandbox_image: str = setting(
        "SANDBOX_IMAGE",
        TEXT,
        "python:3.12-slim",
        "Image of the containers that run scripts. Pulled on first use.",
    )
    sandbox_engine: Path = setting(
        "SANDBOX_ENGINE_SOCKET", FOLDER, "/var/run/docker.sock", "Socket of the container engine."
    )
    sandbox_hosted_url: str | None = setting(
        "SANDBOX_HOSTED_URL", WEB_URL, "https://api.e2b.app", "API that creates hosted microVMs."
    )
    sandbox_hosted_key: str | None = setting(
        "SANDBOX_HOSTED_KEY", OPTIONAL, "", "API key for hosted microVMs.", secret=True
    )
    sandbox_hosted_machines_url: str | None = setting(
        "SANDBOX_HOSTED_MACHINES_URL",
        WEB_URL,
        "",
        "One address for all microVMs, if a header tells them apart.",
        shown="each has its own host name",
    )
    sandbox_hosted_template: str = setting(
        "SANDBOX_HOSTED_TEMPLATE", TEXT, "base", "Template of the microVMs. It must have `python3`."
    )
    sandbox_cli: str = setting(
        "SANDBOX_CLI", PROGRAM, "claude", "Agent CLI for the `local` backend, by name or path."
    )
    agent_provider: str | None = setting(
        "AGENT_PROVIDER",
        one_of("first_party_api", "cloud_bearer_key", blank=True),
        "",
        "How agents reach a model. Unset: the cloud model service in `CLOUD_REGION`, with signed requests.",
    )
    agent_model: str | None = setting(
        "AGENT_MODEL",
        OPTIONAL,
        "",
        "Model for agents, unless the project sets one.",
        shown="the newest Sonnet of the provider",
    )
    agent_output_tokens: int = setting(
        "AGENT_OUTPUT_TOKENS",
        integer(500, 128_000),
        "8000",
        "Longest answer of that model, in tokens.",
    )
    agent_context_tokens: int = setting(
        "AGENT_CONTEXT_TOKENS",
        integer(16_000, 2_000_000),
        "150000",
        "Context window of that model in tokens, answer included.",
    )
    agent_base_url: str | None = setting(
        "AGENT_BASE_URL", WEB_URL, "", "Address of the agents' model provider. Blank: its public address."
    )
    anthropic_api_key: str | None = setting(
        "ANTHROPIC_API_KEY",
        OPTIONAL,
        "",
        "API key for agents with `AGENT_PROVIDER=first_party_api`.",
        secret=True,
    )
    aws_bearer_token: str | None = setting(
        "AWS_BEARER_TOKEN_BEDROCK",
        OPTIONAL,
        "",
        "API key for agents with `AGENT_PROVIDER=cloud_bearer_key`.",
        secret=True,
    )
    aws_access_key_id: str | None = setting(
        "AWS_ACCESS_KEY_ID",
        OPTIONAL,
        "",
        "Access key for signed requests of agents, and for backups in S3. Blank: credentials come from the "
        "container's endpoint, then from the machine's metadata.",
    )
    aws_secret_access_key: str | None = setting(
        "AWS_SECRET_ACCESS_KEY", OPTIONAL, "", "Secret key of that access key.", secret=True
    )
    aws_session_token: str | None = setting(
        "AWS_SESSION_TOKEN", OPTIONAL, "", "Session token of temporary credentials.", secret=True
    )
    aws_container_path: str | None = setting(
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        OPTIONAL,
        "",
        "Credentials endpoint of the container, set by the cloud.",
    )
    aws_container_url: str | None = setting(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI", WEB_URL, "", "The same as a full URL."
    )
    aws_container_token: str | None = setting(
        "AWS_CONTAINER_AUTHORIZATION_TOKEN", OPTIONAL, "", "Token for that endpoint.", secret=True
    )

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the service: no public name, bound to loopback."""
        host = self.http_bind[0]
        return self.site_domain is None and (host == "localhost" or host.startswith("127.") or host == "::1")

    @property
    def small(self) -> bool:
        """Whether the service plans with 512 MB of memory."""
        return self.profile == "small"

    @property
    def does_tls(self) -> bool:
        """Whether TLS ends in this process: it has a public name, and nobody in front does it."""
        return self.site_domain is not None and self.tls_mode != "upstream"

    @property
    def embedded(self) -> bool:
        """Whether the service brings its own database: none is named."""
        return self.jdbc_url is None and self.db_host is None


def absolute_paths(settings: Settings, env: Mapping[str, str]) -> dict[str, str]:
    """Every variable of the environment that holds a path, as a process in another folder must read it."""
    return {name: str(path) for name, path in _paths(settings) if env.get(name, "").strip()}


def naming_variable(path: Path, settings: Settings) -> str | None:
    """The variable that names this path or a folder above it; None when no setting does."""
    above = {path, *path.parents}
    return next((name for name, folder in _paths(settings) if folder in above), None)


def _paths(settings: Settings) -> Iterator[tuple[str, Path | None]]:
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(Settings)  # type: ignore[arg-type]
    for field in fields:
        if field.metadata[_ROW].type == "path":
            yield field.metadata[_ROW].name, getattr(settings, field.name)


def setting_rows() -> tuple[Row, ...]:
    """The settings table, in order."""
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(Settings)  # type: ignore[arg-type]
    return tuple(field.metadata[_ROW] for field in fields)


def read_settings(env: Mapping[str, str]) -> Settings:
    """The settings from an environment. Raises `BadSetting` for the first value that cannot be read."""
    # environ-config joins an empty prefix and a given name to the bare name.
    settings: Settings = environ.to_config(Settings, environ=with_profile(env))
    return settings
