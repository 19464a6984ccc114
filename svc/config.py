"""The settings: one table with every environment variable, its type, default, unit and sentence.

`Settings` *is* the table. The README's table, `trace-svc serve --help` and the boot checks are made from
it. Read once at the start by the command line; nobody else looks at the environment.

Secrets: values of settings marked secret are never printed, neither by errors nor by `doctor`.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import environ

#: Shipped in public, so worth nothing: a start with a public name refuses to run on them (spec, 11).
PLACEHOLDER_SECRET_KEY: Final = "cHVibGlzaGVkLXBsYWNlaG9sZGVyLWNoYW5nZS1tZSE="  # noqa: S105
PLACEHOLDER_COOKIE_PASSWORD: Final = "published-placeholder-cookie-password"  # noqa: S105

#: Retired names that must have no effect and earn no warning (spec, "Removed and ignored keys").
REMOVED: Final = re.compile(
    r"SVC_SANDBOX_.*|SVC_SYNTH_.*|SVC_CI_GATE_BLOCK_ON_REGRESSION|SVC_RISK_MODEL_ENABLED|SVC_GRADING_.*"
    r"|SVC_STORAGE_EMBED_ENABLED|SVC_EMBEDDING_BASE_URL"
)

#: Where an identity provider sends browsers back to.
SSO_CALLBACK: Final = "/auth/sso/callback"

_MIB: Final = 1024 * 1024
_ROW: Final = "trace-svc setting"


class BadSetting(Exception):
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


@attrs.frozen
class _Type:
    """How a text becomes a value, and how the expected form is described."""

    label: str
    expected: str
    read: Callable[[str], Any]


def _text(raw: str) -> str:
    return raw


def _blank_or_text(raw: str) -> str | None:
    return raw or None


def _long_text(raw: str) -> str:
    if len(raw) < 16:
        raise ValueError
    return raw


def _boolean(raw: str) -> bool:
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[raw.lower()]


def _within(low: int, high: int) -> Callable[[str], int]:
    def read(raw: str) -> int:
        value = int(raw)
        if not low <= value <= high:
            raise ValueError
        return value

    return read


def _one_of(*choices: str) -> Callable[[str], str | None]:
    def read(raw: str) -> str | None:
        for choice in choices:
            if raw.lower() == choice.lower():
                return choice
        raise ValueError

    return read


def _optionally(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda raw: read(raw) if raw else None


def _seconds(raw: str) -> float:
    value = float(raw)
    if not 0 <= value <= 86_400:
        raise ValueError
    return value


def _host_port(raw: str) -> tuple[str, int]:
    host, colon, port = raw.rpartition(":")
    host = host.strip("[]")
    if not colon or not host:
        raise ValueError
    return host, _within(0, 65_535)(port)


def _hostname(raw: str) -> str | None:
    if not raw:
        return None
    label = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
    if len(raw) > 253 or not re.fullmatch(rf"{label}(\.{label})*", raw.lower()):
        raise ValueError
    return raw.lower()


def _url(*schemes: str) -> Callable[[str], str]:
    def read(raw: str) -> str:
        parts = urlsplit(raw.removeprefix("jdbc:"))
        if parts.scheme not in schemes or not parts.hostname:
            raise ValueError
        assert parts.port is None or parts.port > 0
        return raw

    return read


def _networks(raw: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(word) for word in raw.split())


def _key32(raw: str) -> bytes:
    key = b64decode(raw, validate=True)
    if len(key) != 32:
        raise ValueError
    return key


def _keys32(raw: str) -> tuple[bytes, ...]:
    return tuple(_key32(word) for word in re.split(r"[\s,]+", raw.strip()) if word)


def _brokers(raw: str) -> str:
    for broker in raw.split(","):
        _host_port(broker.strip())
    return raw


def _path(raw: str) -> Path:
    return Path(raw).expanduser().absolute()


TEXT = _Type("text", "a text", _text)
OPTIONAL = _Type("text", "a text, or blank", _blank_or_text)
BOOLEAN = _Type("boolean", "true or false", _boolean)
PORT = _Type("port", "a port, 1 to 65535", _within(1, 65_535))
DAYS = _Type("integer", "a whole number of days, 0 or more", _within(0, 36_500))
BYTES = _Type("integer", "a whole number of bytes, 1024 or more", _within(1024, 2**50))
SECONDS = _Type("number", "a number of seconds, 0 to 86400", _seconds)
BIND = _Type("host:port", "host:port, such as 127.0.0.1:8000", _host_port)
HOSTNAME = _Type("hostname", "a bare hostname without scheme, port or path", _hostname)
WEB_URL = _Type("URL", "an http or https URL", _optionally(_url("http", "https")))
HEARTBEAT_URL = _Type("URL", "an http or https URL", _url("http", "https"))
DB_URL = _Type("URL", "jdbc:postgresql://… or postgresql://…", _optionally(_url("postgresql", "postgres")))
OWN_KEY = _Type("base64", "base64 of exactly 32 bytes, such as `openssl rand -base64 32` prints", _key32)
OWN_PASSWORD = _Type("text", "a text of at least 16 characters", _long_text)
KEYS32 = _Type("base64 list", "base64 keys of exactly 32 bytes each, separated by spaces", _keys32)
NETWORKS = _Type("CIDR list", "networks in CIDR form, separated by spaces", _networks)
BROKERS = _Type("host:port list", "host:port, several separated by commas", _brokers)
FOLDER = _Type("path", "a path", _path)
FILE = _Type("path", "a path, or blank", _optionally(_path))


def integer(low: int, high: int) -> _Type:
    """A whole number between two bounds, both allowed."""
    return _Type("integer", f"a whole number from {low} to {high}", _within(low, high))


def one_of(*choices: str, blank: bool = False) -> _Type:
    """One word of a closed list, in any letter case; `blank` allows the empty value."""
    expected = "one of " + ", ".join(choices) + (", or blank" if blank else "")
    read = _one_of(*choices)
    return _Type(" \\| ".join(choices), expected, _optionally(read) if blank else read)


def setting(
    name: str,
    type_: _Type,
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
        # A compose file passes on what nobody set as blank: for these two that is no value.
        text = raw.strip() or (default if type_ in (OWN_KEY, OWN_PASSWORD) else "")
        try:
            return type_.read(text)
        except (ValueError, KeyError, Base64Error, AssertionError):
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
        "SVC_HTTP_BIND", BIND, "127.0.0.1:8000", "Address of the HTTP server; gRPC listens on the same host."
    )
    data_dir: Path = setting(
        "SVC_DATA_DIR",
        FOLDER,
        default_data_dir(),
        "Folder of the embedded database and of everything else that is kept.",
        shown="~/.local/share/trace-svc, for root /var/lib/trace-svc",
    )
    log_level: str = setting(
        "SVC_LOG_LEVEL", one_of("debug", "info", "warning", "error"), "info", "Least level that is logged."
    )
    shutdown_drain_s: float = setting(
        "SVC_SHUTDOWN_DRAIN_SECONDS",
        SECONDS,
        "25",
        "Longest time that a stop waits for requests to end and for the spool to empty.",
        unit="s",
    )

    prices_file: Path | None = setting(
        "SVC_PRICES_FILE",
        FILE,
        "",
        "TOML file with prices of your own, before those of the price book; read anew on SIGHUP.",
    )

    transport: str = setting(
        "SVC_INGEST_OTLP_TRANSPORT", one_of("HTTP", "GRPC", "BOTH"), "HTTP", "Doors open for OTLP."
    )
    grpc_port: int = setting("SVC_INGEST_OTLP_GRPC_PORT", PORT, "4317", "Port of the gRPC door.")
    max_body_bytes: int = setting(
        "SVC_INGEST_MAX_BODY_BYTES",
        BYTES,
        str(64 * _MIB),
        "Largest body of an ingest request, as sent and as inflated.",
        unit="bytes",
    )
    spool_mode: str = setting(
        "SVC_INGEST_SPOOL_MODE",
        one_of("memory", "disk", "kafka"),
        "memory",
        "Where accepted batches wait for the database: memory, the local disk, or a Kafka-API broker.",
    )
    spool_max_bytes: int = setting(
        "SVC_INGEST_SPOOL_MAX_BYTES",
        BYTES,
        str(128 * _MIB),
        "Budget for accepted batches until they are stored; above it ingest answers 503.",
        unit="bytes",
    )
    spool_disk_max_bytes: int = setting(
        "SVC_INGEST_SPOOL_DISK_MAX_BYTES",
        BYTES,
        str(4096 * _MIB),
        "Budget on disk in disk mode; `SVC_INGEST_SPOOL_MAX_BYTES` then bounds what is also held in memory.",
        unit="bytes",
    )
    spool_max_lag_ms: int = setting(
        "SVC_INGEST_SPOOL_MAX_LAG_MS",
        integer(0, 10**12),
        "300000",
        "Age of the oldest waiting batch above which health reports DOWN; 0 disables the check.",
        unit="ms",
    )
    drainers: int = setting(
        "SVC_INGEST_DRAINERS",
        integer(1, 16),
        "2",
        "Drainers that write accepted batches in memory and disk mode.",
    )
    decoders: int = setting(
        "SVC_INGEST_DECODERS",
        integer(0, 32),
        default_decoders(),
        "Processes that decode and store spans beside the one that answers; 0 does it all in one.",
        shown="one for each core, at most 4; none on a single core",
    )
    kafka_consumers: int = setting(
        "SVC_INGEST_SPOOL_KAFKA_CONSUMERS", integer(1, 64), "4", "Drainers in kafka mode, useful up to 8."
    )
    kafka_bootstrap_servers: str = setting(
        "SVC_INGEST_SPOOL_KAFKA_BOOTSTRAP_SERVERS", BROKERS, "localhost:9092", "Brokers of kafka mode."
    )
    kafka_replication_factor: int = setting(
        "SVC_INGEST_SPOOL_KAFKA_REPLICATION_FACTOR",
        integer(1, 9),
        "1",
        "Copies of each message in kafka mode; above 1 the broker waits for two.",
    )

    jdbc_url: str | None = setting(
        "SVC_JDBC_URL",
        DB_URL,
        "",
        "A served PostgreSQL instead of the embedded one; its credentials may stand in the URL.",
        secret=True,
    )
    db_host: str | None = setting(
        "DB_HOST", OPTIONAL, "", "Host of a served PostgreSQL; blank means the embedded one."
    )
    db_port: int = setting("DB_PORT", PORT, "5432", "Port of the served PostgreSQL.")
    db_name: str = setting("DB_NAME", TEXT, "trace_svc", "Name of the database.")
    db_user: str = setting("DB_USER", TEXT, "trace_svc", "User of the database.")
    db_password: str = setting("DB_PASSWORD", TEXT, "trace_svc", "Password of the database.", secret=True)
    db_data_dir: str = setting(
        "DB_DATA_DIR",
        TEXT,
        "trace-svc-db",
        "Compose only: a bare name is a named volume, a path is a host bind.",
    )

    trace_ttl_days: int = setting(
        "SVC_RETENTION_TRACE_TTL_DAYS", DAYS, "90", "How long traces are kept; 0 keeps them forever.",
        unit="days",
    )  # fmt: skip
    detection_ttl_days: int = setting(
        "SVC_RETENTION_DETECTION_TTL_DAYS", DAYS, "90", "How long detections are kept; 0 keeps them forever.",
        unit="days",
    )  # fmt: skip
    retention_enabled: bool = setting(
        "SVC_RETENTION_ENABLED", BOOLEAN, "true", "Whether the hourly retention sweep deletes anything."
    )

    secret_key: bytes = setting(
        "SVC_SECRET_KEY",
        OWN_KEY,
        PLACEHOLDER_SECRET_KEY,
        "AES-256-GCM key that seals stored secrets; a local start makes its own in `SVC_DATA_DIR/secrets`.",
        shown="published placeholder",
        secret=True,
    )
    secret_key_previous: tuple[bytes, ...] = setting(
        "SVC_SECRET_KEY_PREVIOUS", KEYS32, "", "Earlier sealing keys that still open older values.",
        secret=True,
    )  # fmt: skip
    cookie_password: str = setting(
        "SVC_AUTH_COOKIE_PASSWORD",
        OWN_PASSWORD,
        PLACEHOLDER_COOKIE_PASSWORD,
        "Key of the session cookie; a local start makes its own in `SVC_DATA_DIR/secrets`.",
        shown="published placeholder",
        secret=True,
    )
    auth_disabled: bool = setting(
        "SVC_AUTH_DISABLED",
        BOOLEAN,
        "false",
        "Single-user mode: whoever reaches the service owns it, and `/mcp` is off.",
    )
    auth_passwords: bool = setting(
        "SVC_AUTH_PASSWORDS",
        BOOLEAN,
        "true",
        "Whether people sign up and in with a password; false leaves the identity provider alone.",
    )
    auth_tries_per_address: int = setting(
        "SVC_AUTH_TRIES_PER_ADDRESS",
        integer(0, 10**6),
        "30",
        "Sign-ins and sign-ups that one client address may try within the window; 0 means any number.",
    )
    auth_tries_per_account: int = setting(
        "SVC_AUTH_TRIES_PER_ACCOUNT",
        integer(0, 10**6),
        "10",
        "Failed sign-ins that one account may see within the window; 0 means any number.",
    )
    auth_tries_window_s: float = setting(
        "SVC_AUTH_TRIES_WINDOW_SECONDS", SECONDS, "300", "The window of the two limits above.", unit="s"
    )
    frontend_url: str | None = setting(
        "SVC_AUTH_FRONTEND_URL",
        WEB_URL,
        "",
        "Landing origin after sign-in; derived from `SITE_DOMAIN`, else from `HTTP_PORT`.",
        shown="derived",
    )
    sso_api_key: str | None = setting(
        "SSO_API_KEY", OPTIONAL, "", "Client secret of an external identity provider.", secret=True
    )
    sso_client_id: str | None = setting(
        "SSO_CLIENT_ID", OPTIONAL, "", "Client id at the external identity provider."
    )
    sso_issuer_url: str | None = setting(
        "SSO_ISSUER_URL",
        WEB_URL,
        "",
        "Issuer of the external identity provider (OpenID Connect); goes with the two above.",
    )
    sso_redirect_uri: str | None = setting(
        "SSO_REDIRECT_URI", WEB_URL, "", "Redirect after external sign-in; derived from `SITE_DOMAIN`.",
        shown="derived",
    )  # fmt: skip

    site_domain: str | None = setting(
        "SITE_DOMAIN", HOSTNAME, "", "Bare hostname of the public origin; unset serves plain HTTP only."
    )
    tls_mode: str = setting(
        "TLS_MODE", one_of("acme", "owncert", "upstream"), "acme", "Where TLS ends when `SITE_DOMAIN` is set."
    )
    acme_email: str | None = setting(
        "ACME_EMAIL", OPTIONAL, "", "Required when `SITE_DOMAIN` is set in `acme` mode."
    )
    trusted_proxies: tuple[Any, ...] = setting(
        "TRUSTED_PROXIES", NETWORKS, "", "Networks whose forwarded headers are honoured, in `upstream` mode."
    )
    http_port: int = setting("HTTP_PORT", PORT, "80", "Compose only: host port mapped to the front.")
    https_port: int = setting("HTTPS_PORT", PORT, "443", "Compose only: host port for TLS.")

    telemetry_enabled: bool = setting(
        "SVC_TELEMETRY_ENABLED", BOOLEAN, "true", "Whether the anonymous daily heartbeat may be sent."
    )
    telemetry_url: str = setting(
        "SVC_TELEMETRY_URL",
        HEARTBEAT_URL,
        "https://heartbeat.trace-svc.example/v1/heartbeat",
        "Where the heartbeat is sent.",
    )
    cloud_region: str | None = setting(
        "CLOUD_REGION", OPTIONAL, "", "Ambient region for one cloud model provider."
    )
    encoder_url: str | None = setting(
        "SVC_OBSERVER_ENCODER_URL", WEB_URL, "", "Encoder classifier service; blank in the open edition."
    )
    encoder_api_key: str | None = setting(
        "SVC_OBSERVER_ENCODER_API_KEY", OPTIONAL, "", "Key of the encoder classifier service.", secret=True
    )
    launcher_url: str = setting(
        "SVC_OBSERVER_AGENTIC_LAUNCHER_URL",
        WEB_URL,
        "http://sandbox-runner:8080",
        "Sandbox-runner service for root-cause analysis, triage and drift detection.",
    )
    sandbox_backend: str = setting(
        "SANDBOX_BACKEND",
        one_of("container", "hosted", "local"),
        "container",
        "Where agents run: sibling containers, hosted microVMs, or the host's own agent CLI.",
    )
    sandbox_work_volume: str = setting(
        "SANDBOX_WORK_VOLUME", TEXT, "trace-svc-sandbox-work", "Volume shared with spawned containers."
    )
    agent_provider: str | None = setting(
        "AGENT_PROVIDER",
        one_of("first_party_api", "cloud_bearer_key", blank=True),
        "",
        "How agents reach a model; unset means the signed-request cloud model service.",
    )


def table() -> tuple[Row, ...]:
    """The settings table, in order."""
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(Settings)  # type: ignore[arg-type]
    return tuple(field.metadata[_ROW] for field in fields)


def read(env: Mapping[str, str]) -> Settings:
    """The settings from an environment. Raises `BadSetting` for the first value that cannot be read."""
    # environ-config joins an empty prefix and a given name to the bare name.
    settings: Settings = environ.to_config(Settings, environ=dict(env))
    return settings


def unknown(env: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """`SVC_*` names that mean nothing, each with the nearest known name if one is near."""
    known = [row.name for row in table()]
    return [
        (name, next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.6)), None))
        for name in sorted(env)
        if name.startswith("SVC_") and name not in known and not REMOVED.fullmatch(name)
    ]


def boot_refusals(settings: Settings) -> list[str]:
    """Why this combination of settings must not start, one sentence each; empty when it may."""
    refusals = []
    placeholder_key = settings.secret_key == b64decode(PLACEHOLDER_SECRET_KEY)
    placeholder_cookie = settings.cookie_password == PLACEHOLDER_COOKIE_PASSWORD
    if settings.site_domain is not None:
        if placeholder_key:
            refusals.append(
                "SITE_DOMAIN is set while SVC_SECRET_KEY is the published placeholder; "
                "set it to base64 of 32 random bytes (openssl rand -base64 32)"
            )
        if placeholder_cookie:
            refusals.append(
                "SITE_DOMAIN is set while SVC_AUTH_COOKIE_PASSWORD is the published placeholder; "
                "set it to a long random text"
            )
        if settings.tls_mode == "acme" and settings.acme_email is None:
            refusals.append("ACME_EMAIL is blank; TLS_MODE=acme with a SITE_DOMAIN needs an address")
    if settings.frontend_url is not None and settings.site_domain is not None:
        host = urlsplit(settings.frontend_url).hostname
        if host != settings.site_domain:
            refusals.append(
                f"SVC_AUTH_FRONTEND_URL names {host!r}; it must name the host of SITE_DOMAIN, "
                f"{settings.site_domain!r}"
            )
    sso = {
        "SSO_ISSUER_URL": settings.sso_issuer_url,
        "SSO_CLIENT_ID": settings.sso_client_id,
        "SSO_API_KEY": settings.sso_api_key,
    }
    missing = [name for name, value in sso.items() if value is None]
    if 0 < len(missing) < len(sso):
        refusals.append(f"{' and '.join(missing)} must be set too, or none of {', '.join(sso)}")
    if not settings.auth_passwords and missing:
        refusals.append(
            f"SVC_AUTH_PASSWORDS is false while {' and '.join(missing)} is unset: nobody could sign in"
        )
    if settings.sso_redirect_uri is not None and urlsplit(settings.sso_redirect_uri).path != SSO_CALLBACK:
        refusals.append(
            f"SSO_REDIRECT_URI is {settings.sso_redirect_uri!r}; its path must be {SSO_CALLBACK}, where "
            "browsers come back to"
        )
    if settings.auth_disabled and settings.site_domain is not None:
        refusals.append(
            "SVC_AUTH_DISABLED is true while SITE_DOMAIN is set: everybody would own the service; unset one"
        )
    return refusals


def boot_warnings(settings: Settings, env: Mapping[str, str]) -> list[str]:
    """What the operator should know at the start, one sentence each."""
    warnings = [
        f"{name} is not a setting of this service" + (f"; did you mean {near}?" if near else "")
        for name, near in unknown(env)
    ]
    if settings.secret_key == b64decode(PLACEHOLDER_SECRET_KEY):
        warnings.append(
            "SVC_SECRET_KEY is the published placeholder, so anyone could read what is sealed with it; "
            "set it to base64 of 32 random bytes (openssl rand -base64 32)"
        )
    if settings.cookie_password == PLACEHOLDER_COOKIE_PASSWORD:
        warnings.append(
            "SVC_AUTH_COOKIE_PASSWORD is the published placeholder, so anyone could forge a session cookie; "
            "set it to a long random text"
        )
    if settings.trusted_proxies and (settings.site_domain is None or settings.tls_mode != "upstream"):
        warnings.append(
            "TRUSTED_PROXIES has no effect; it needs SITE_DOMAIN and TLS_MODE=upstream, so forwarded headers "
            "are ignored"
        )
    if settings.auth_disabled:
        warnings.append(
            "SVC_AUTH_DISABLED is true: WHOEVER REACHES THIS SERVICE OWNS IT, without signing in; "
            "/mcp is off. Unset it unless nobody else can reach this machine"
        )
    return warnings


def markdown_table() -> str:
    """The table as the README shows it."""
    lines = ["| Variable | Type | Default | Unit | What it does |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | {row.type} | {_shown(row)} | {row.unit} | {row.sentence} |" for row in table()
    ]
    return "\n".join(lines)


def _shown(row: Row) -> str:
    plain = {"blank", "derived", "published placeholder"}
    return row.default if row.default in plain or " " in row.default else f"`{row.default}`"


def help_text() -> str:
    """The table as `--help` shows it."""
    width = max(len(row.name) for row in table())
    return "\n".join(
        f"  {row.name:<{width}}  {row.sentence} [{row.default}{' ' + row.unit if row.unit else ''}]"
        for row in table()
    )
