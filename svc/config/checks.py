"""What is said of settings before anything starts: names nobody knows, combinations that refuse or warn.

The command line asks once at the start, and so does `doctor`. Never changes a setting.
"""

from __future__ import annotations

import difflib
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from protocol.database_address import READS_ONLY, parse_url
from protocol.rest.accounts import SSO_CALLBACK
from svc.config.table import PLACEHOLDER_COOKIE_PASSWORD, PLACEHOLDER_SECRET_KEY, Settings, setting_rows

#: Retired names that must have no effect and earn no warning (spec, "Removed and ignored keys").
REMOVED: Final = re.compile(
    r"SVC_SANDBOX_.*|SVC_SYNTH_.*|SVC_CI_GATE_BLOCK_ON_REGRESSION|SVC_RISK_MODEL_ENABLED|SVC_GRADING_.*"
    r"|SVC_STORAGE_EMBED_ENABLED|SVC_EMBEDDING_BASE_URL"
)


#: What other services call a setting of ours.
_OTHER_NAMES: Final = {"SVC_PORT": "SVC_HTTP_BIND", "SVC_HOST": "SVC_HTTP_BIND", "SVC_BIND": "SVC_HTTP_BIND"}
_PREFIX: Final = "SVC_"


def unknown_settings(env: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """`SVC_*` names that mean nothing, each with the nearest known name if one is near."""
    names = [row.name for row in setting_rows()]
    return [
        (name, _OTHER_NAMES.get(name) or _nearest(name, names))
        for name in sorted(env)
        if name.startswith(_PREFIX) and name not in names and not REMOVED.fullmatch(name)
    ]


def _nearest(name: str, names: Sequence[str]) -> str | None:
    # The prefix, which all share, would make any two short names look alike.
    short_names = [setting.removeprefix(_PREFIX) for setting in names if setting.startswith(_PREFIX)]
    nearest = difflib.get_close_matches(name.removeprefix(_PREFIX), short_names, n=1, cutoff=0.6)
    return _PREFIX + nearest[0] if nearest else None


#: What paths of the service begin with: under a sub-path that begins so, nobody could tell which is meant.
OWN_SEGMENTS: Final = frozenset(
    {
        *(".well-known", "account", "actuator", "api", "auth", "favicon.ico", "invitation", "login"),
        *("logout", "mcp", "oauth", "openapi.json", "orgs", "signup", "static", "v1"),
    }
)


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
    if settings.base_path and settings.base_path.split("/")[1] in OWN_SEGMENTS:
        refusals.append(
            f"SVC_BASE_PATH is {settings.base_path!r}; a path of the service itself begins so, "
            "choose another first part"
        )
    if settings.auth_disabled and settings.site_domain is not None:
        refusals.append(
            "SVC_AUTH_DISABLED is true while SITE_DOMAIN is set: everybody would own the service; unset one"
        )
    refusals += _sign_on_refusals(settings)
    refusals += _database_refusals(settings) + _backup_refusals(settings) + _wal_refusals(settings)
    return refusals + _broker_refusals(settings) + _tee_refusals(settings)


def _sign_on_refusals(settings: Settings) -> list[str]:
    """What the external identity provider needs."""
    refusals = []
    sso = {
        "SSO_ISSUER_URL": settings.sso_issuer_url,
        "SSO_CLIENT_ID": settings.sso_client_id,
        "SSO_API_KEY": settings.sso_api_key,
    }
    missing = [name for name, value in sso.items() if value is None]
    if 0 < len(missing) < len(sso):
        refusals.append(
            f"{' and '.join(missing)} must be set too, or none of {', '.join(sso)}; SSO_ISSUER_URL is the"
            " address of the identity provider, such as https://login.example.org"
        )
    if not settings.auth_passwords and missing:
        refusals.append(
            f"SVC_AUTH_PASSWORDS is false while {' and '.join(missing)} is unset: nobody could sign in"
        )
    callback = settings.base_path + SSO_CALLBACK
    if settings.sso_redirect_uri is not None and urlsplit(settings.sso_redirect_uri).path != callback:
        refusals.append(
            f"SSO_REDIRECT_URI is {settings.sso_redirect_uri!r}; its path must be {callback}, where "
            "browsers come back to"
        )
    if settings.sso_redirect_uri is not None and settings.site_domain is not None:
        host = urlsplit(settings.sso_redirect_uri).hostname
        if host != settings.site_domain:
            refusals.append(
                f"SSO_REDIRECT_URI names {host!r}; it must name the host of SITE_DOMAIN, "
                f"{settings.site_domain!r}"
            )
    return refusals


def _database_refusals(settings: Settings) -> list[str]:
    """What only one of the two kinds of database can do."""
    refusals = []
    if settings.jdbc_url is not None and parse_url(settings.jdbc_url).target in READS_ONLY:
        refusals.append(
            "SVC_JDBC_URL asks for a server that cannot be written to: set targetServerType=primary (or"
            " target_session_attrs=read-write) there, and name replicas in SVC_READ_URL"
        )
    if settings.read_url is not None and settings.embedded:
        refusals.append(
            "SVC_READ_URL names a replica, and the embedded database has none: name a served one by"
            " SVC_JDBC_URL"
        )
    if settings.backup_physical and not settings.embedded:
        refusals.append(
            "SVC_BACKUP_PHYSICAL is true, and the database is served: unset it, and the nightly backup copies"
            " its rows; or unset SVC_BACKUP_DIR and use the tools of that server"
        )
    return refusals


def _wal_refusals(settings: Settings) -> list[str]:
    """What the WAL is copied for."""
    if settings.backup_wal_s and not (settings.backup_dir is not None and settings.backup_physical):
        return [
            "SVC_BACKUP_WAL_SECONDS is set: the write-ahead log can only be put over a physical backup, so"
            " set SVC_BACKUP_DIR and SVC_BACKUP_PHYSICAL=true, or unset it"
        ]
    return []


def _backup_refusals(settings: Settings) -> list[str]:
    """What a copy of the nightly backup needs."""
    if settings.backup_s3_url is None:
        return []
    refusals = []
    if settings.backup_dir is None:
        refusals.append(
            "SVC_BACKUP_S3_URL is set while SVC_BACKUP_DIR is blank: the nightly backup is made in a folder"
            " and copied from there, so name one"
        )
    own = settings.backup_s3_access_key_id, settings.backup_s3_secret_access_key
    usual = settings.aws_access_key_id, settings.aws_secret_access_key
    prefix, key = ("AWS_", usual) if own == (None, None) else ("SVC_BACKUP_S3_", own)
    if key.count(None) == 1:
        refusals.append(
            f"{prefix}ACCESS_KEY_ID and {prefix}SECRET_ACCESS_KEY must both be set for SVC_BACKUP_S3_URL, or"
            " neither of them: then the machine's role is used"
        )
    return refusals


def _tee_refusals(settings: Settings) -> list[str]:
    """A tee into this very service would send each span round for ever."""
    if settings.tee_endpoint is None:
        return []
    parts = urlsplit(settings.tee_endpoint)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    local = {"localhost", "127.0.0.1", "::1", settings.site_domain}
    own = {
        (host, bind[1]) for bind in (settings.http_bind, settings.https_bind) for host in (*local, bind[0])
    }
    own |= {(settings.site_domain, 80), (settings.site_domain, 443)}
    if (parts.hostname, port) not in own:
        return []
    return [f"SVC_TEE_ENDPOINT is {settings.tee_endpoint!r}, which is this service itself; name another one"]


def _broker_refusals(settings: Settings) -> list[str]:
    if settings.spool_mode != "kafka" or not settings.kafka_security_protocol.startswith("SASL"):
        return []
    login = {
        "SVC_INGEST_SPOOL_KAFKA_USER": settings.kafka_user,
        "SVC_INGEST_SPOOL_KAFKA_PASSWORD": settings.kafka_password,
    }
    missing = [name for name, value in login.items() if value is None]
    if not missing:
        return []
    return [
        f"{' and '.join(missing)} must be set: SVC_INGEST_SPOOL_KAFKA_SECURITY_PROTOCOL is "
        f"{settings.kafka_security_protocol}"
    ]


def name_warnings(env: Mapping[str, str]) -> list[str]:
    """What the operator should know of names that mean nothing, one sentence each."""
    return [
        f"{name} is not a setting of this service" + (f"; did you mean {near}?" if near else "")
        for name, near in unknown_settings(env)
    ]


def boot_warnings(settings: Settings, env: Mapping[str, str]) -> list[str]:
    """What the operator should know at the start of the service, one sentence each."""
    warnings = name_warnings(env)
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
    if settings.encoder_api_key is not None and settings.encoder_url is None:
        warnings.append(
            "SVC_OBSERVER_ENCODER_API_KEY has no effect without SVC_OBSERVER_ENCODER_URL; frustration and "
            "groundedness stay unavailable"
        )
    if settings.tee_headers and settings.tee_endpoint is None:
        warnings.append("SVC_TEE_HEADERS has no effect without SVC_TEE_ENDPOINT")
    if settings.trusted_proxies and (settings.site_domain is None or settings.tls_mode != "upstream"):
        warnings.append(
            "TRUSTED_PROXIES has no effect; it needs SITE_DOMAIN and TLS_MODE=upstream, so forwarded headers "
            "are ignored"
        )
    if settings.kafka_user is not None and not settings.kafka_security_protocol.startswith("SASL"):
        warnings.append(
            "SVC_INGEST_SPOOL_KAFKA_USER has no effect; it needs SVC_INGEST_SPOOL_KAFKA_SECURITY_PROTOCOL "
            "to be SASL_SSL or SASL_PLAINTEXT"
        )
    if settings.auth_disabled:
        warnings.append(
            "SVC_AUTH_DISABLED is true: WHOEVER REACHES THIS SERVICE OWNS IT, without signing in; "
            "/mcp is off. Unset it unless nobody else can reach this machine"
        )
    return warnings
