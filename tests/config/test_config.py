"""The settings table: what cannot be read refuses the boot, the unknown warns, the removed is silent."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from svc.application.addresses import public_origin, sso_redirect_uri
from svc.config.checks import boot_refusals, boot_warnings, unknown_settings
from svc.config.table import BadSetting, absolute_paths, read_settings, setting_rows
from tests.forked import ran
from tests.service import TRACE_SVC, environment

SPEC = Path(__file__).parents[3] / "shared" / "spec.md"


def test_nothing_configured_is_a_whole_configuration() -> None:
    settings = read_settings({})
    assert settings.transport == "HTTP"
    assert settings.spool_mode == "memory"
    assert settings.http_bind == ("127.0.0.1", 8000)
    assert boot_refusals(settings) == []


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SVC_HTTP_BIND", "8000", "host:port"),
        ("SVC_INGEST_OTLP_TRANSPORT", "HTTPS", "one of HTTP, GRPC, BOTH"),
        ("SVC_INGEST_OTLP_GRPC_PORT", "70000", "a port"),
        ("SVC_INGEST_SPOOL_MAX_BYTES", "12", "bytes"),
        ("SVC_INGEST_SPOOL_MAX_LAG_MS", "-1", "whole number"),
        ("SVC_INGEST_SPOOL_MODE", "tape", "memory, disk, kafka"),
        ("SVC_RETENTION_TRACE_TTL_DAYS", "1.5", "days"),
        ("SVC_RETENTION_ENABLED", "maybe", "true or false"),
        ("SVC_JDBC_URL", "mysql://x/y", "postgresql"),
        ("SVC_JDBC_URL", "postgresql://a:1,b:x/y", "postgresql"),
        ("SITE_DOMAIN", "https://traces.example.org", "bare hostname"),
        ("SITE_DOMAIN", "traces.example.org:8443", "bare hostname"),
        ("SITE_DOMAIN", "traces.example.org/ui", "bare hostname"),
        ("SVC_SECRET_KEY", base64.b64encode(b"short").decode(), "32 bytes"),
        ("SVC_SECRET_KEY_PREVIOUS", "not-base64!", "32 bytes"),
        ("SVC_AUTH_COOKIE_PASSWORD", "too short", "16 characters"),
        ("TRUSTED_PROXIES", "10.0.0.0/33", "CIDR"),
        ("TLS_MODE", "none", "acme, owncert, upstream"),
        ("SVC_SHUTDOWN_DRAIN_SECONDS", "nan", "seconds"),
        ("AGENT_PROVIDER", "other", "first_party_api"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_with_what_was_expected(
    name: str, value: str, expected: str
) -> None:
    with pytest.raises(BadSetting) as refusal:
        read_settings({name: value})
    text = str(refusal.value)
    assert name in text
    assert expected in text
    assert (value in text) is not any(word in name for word in ("SECRET", "PASSWORD", "JDBC"))


@pytest.mark.parametrize("wanted", ["targetServerType=secondary", "target_session_attrs=read-only"])
def test_a_database_that_cannot_be_written_to_refuses_the_boot(wanted: str) -> None:
    url = f"jdbc:postgresql://a:5432,b:5433/db?{wanted}"
    (refusal,) = boot_refusals(read_settings({"SVC_JDBC_URL": url}))
    assert "SVC_JDBC_URL asks for a server that cannot be written to" in refusal
    settings = read_settings({"SVC_JDBC_URL": "postgresql://a,b/db", "SVC_READ_URL": url})
    assert boot_refusals(settings) == []


def test_an_unknown_name_of_ours_is_warned_of_with_the_nearest_known_one() -> None:
    env = {"SVC_INGEST_SPOL_MODE": "disk", "SVC_XYZZY": "1", "OTHER": "1"}
    unknown = dict(unknown_settings(env))
    assert unknown == {"SVC_INGEST_SPOL_MODE": "SVC_INGEST_SPOOL_MODE", "SVC_XYZZY": None}
    assert unknown_settings({"SVC_PORT": "8471"}) == [("SVC_PORT", "SVC_HTTP_BIND")]
    assert unknown_settings({"SVC_ROTA": "x"}) == [("SVC_ROTA", None)]
    (typo, *_) = boot_warnings(read_settings({}), env)
    assert "did you mean SVC_INGEST_SPOOL_MODE?" in typo


@pytest.mark.parametrize(
    "name",
    [
        "SVC_SANDBOX_IMAGE",
        "SVC_SYNTH_X",
        "SVC_CI_GATE_BLOCK_ON_REGRESSION",
        "SVC_RISK_MODEL_ENABLED",
        "SVC_GRADING_MODEL",
        "SVC_STORAGE_EMBED_ENABLED",
        "SVC_EMBEDDING_BASE_URL",
    ],
)
def test_a_removed_name_has_no_effect_and_no_warning(name: str) -> None:
    assert unknown_settings({name: "x"}) == []
    assert read_settings({name: "x"}) == read_settings({})


SECRETS = {
    "SVC_SECRET_KEY": base64.b64encode(bytes(range(32))).decode(),
    "SVC_AUTH_COOKIE_PASSWORD": "a long and private text",
}


def test_a_public_name_on_placeholder_secrets_refuses_to_boot() -> None:
    refusals = boot_refusals(read_settings({"SITE_DOMAIN": "t.example.org", "TLS_MODE": "upstream"}))
    assert [re.search(r"SVC_[A-Z_]+", text)[0] for text in refusals] == list(SECRETS)  # type: ignore[index]


def test_a_public_name_with_secrets_of_its_own_may_boot() -> None:
    env = {"SITE_DOMAIN": "t.example.org", "TLS_MODE": "upstream", **SECRETS}
    assert boot_refusals(read_settings(env)) == []


def test_acme_needs_an_address() -> None:
    env = {"SITE_DOMAIN": "t.example.org", **SECRETS}
    assert any("ACME_EMAIL" in text for text in boot_refusals(read_settings(env)))
    assert boot_refusals(read_settings({**env, "ACME_EMAIL": "ops@example.org"})) == []


def test_a_frontend_of_another_host_refuses_to_boot() -> None:
    env = {"SITE_DOMAIN": "t.example.org", "TLS_MODE": "upstream", **SECRETS}
    other = read_settings({**env, "SVC_AUTH_FRONTEND_URL": "https://evil.example.org"})
    assert any("SVC_AUTH_FRONTEND_URL" in text for text in boot_refusals(other))
    same = read_settings({**env, "SVC_AUTH_FRONTEND_URL": "https://t.example.org/"})
    assert boot_refusals(same) == []


@pytest.mark.parametrize("path", ["/traces", "/apps/traces", "/~me/v1.2"])
def test_a_sub_path_is_a_path_without_a_slash_at_its_end(path: str) -> None:
    assert read_settings({"SVC_BASE_PATH": path}).base_path == path
    for bad in (path + "/", path[1:], path + "//x", path + "/../x", path + "?x", path + " x"):
        with pytest.raises(BadSetting, match="such as /traces"):
            read_settings({"SVC_BASE_PATH": bad})


def test_a_sub_path_that_begins_as_a_path_of_the_service_refuses_to_boot() -> None:
    (refusal,) = boot_refusals(read_settings({"SVC_BASE_PATH": "/v1/traces"}))
    assert "SVC_BASE_PATH is '/v1/traces'" in refusal
    assert boot_refusals(read_settings({"SVC_BASE_PATH": "/v12"})) == []


def test_a_sub_path_is_part_of_what_the_identity_provider_sends_back_to() -> None:
    env = {"SITE_DOMAIN": "t.example.org", "TLS_MODE": "upstream", "SVC_BASE_PATH": "/traces", **SECRETS}
    bare = read_settings({**env, "SSO_REDIRECT_URI": "https://t.example.org/auth/sso/callback"})
    assert any("/traces/auth/sso/callback" in refusal for refusal in boot_refusals(bare))
    assert sso_redirect_uri(read_settings(env)) == "https://t.example.org/traces/auth/sso/callback"
    assert public_origin(read_settings(env), 8000) == "https://t.example.org/traces"


def test_placeholder_secrets_are_warned_of() -> None:
    for name in SECRETS:
        assert any(text.startswith(name) for text in boot_warnings(read_settings({}), {}))
    assert boot_warnings(read_settings(SECRETS), SECRETS) == []


def test_trusted_proxies_without_upstream_mode_are_warned_of() -> None:
    env = {"TRUSTED_PROXIES": "10.0.0.0/8", **SECRETS}
    (warning,) = boot_warnings(read_settings(env), env)
    assert warning.startswith("TRUSTED_PROXIES")
    upstream = {**env, "SITE_DOMAIN": "t.example.org", "TLS_MODE": "upstream"}
    assert boot_warnings(read_settings(upstream), upstream) == []


def test_every_variable_of_the_specification_is_in_the_table() -> None:
    if not SPEC.exists():
        pytest.skip("the specification is not beside the repository")
    text = SPEC.read_text(encoding="utf-8")
    section = text[text.index("### Configuration variables") : text.index("Removed and ignored keys")]
    named = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", section, re.M))))
    assert len(named) > 30
    assert named <= {row.name for row in setting_rows()}


def test_every_setting_has_a_sentence() -> None:
    for row in setting_rows():
        assert re.fullmatch(r"[A-Z].*[^.]\.", row.sentence), row.name


def test_a_bad_value_ends_the_command_with_its_sentence(tmp_path: Path) -> None:

    env = environment(tmp_path, SVC_INGEST_OTLP_GRPC_PORT="nope")
    done = ran([TRACE_SVC, "serve"], env=env, timeout_s=30)
    assert done.returncode == 1
    assert done.stderr == "trace-svc: SVC_INGEST_OTLP_GRPC_PORT is 'nope'; expected a port, 1 to 65535\n"


def test_a_blank_variable_is_its_default() -> None:
    """A compose file passes on what nobody set as blank."""
    blank = {row.name: " " for row in setting_rows()}
    assert read_settings(blank) == read_settings({})


def test_detectors_look_once_a_minute_and_may_be_wrong_twice_a_month() -> None:
    usual = read_settings({})
    assert (usual.detectors_interval_s, usual.false_alarms_per_month) == (60, 2.0)
    own = {"SVC_DETECTORS_INTERVAL_SECONDS": "5", "SVC_DETECTORS_FALSE_ALARMS_PER_MONTH": "0.5"}
    assert (read_settings(own).detectors_interval_s, read_settings(own).false_alarms_per_month) == (5, 0.5)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("SVC_DETECTORS_FALSE_ALARMS_PER_MONTH", bad) for bad in ("0", "-1", "nan", "inf", "many")),
        *(("SVC_DETECTORS_INTERVAL_SECONDS", bad) for bad in ("0", "0.5", "86401")),
    ],
)
def test_a_budget_without_alarms_and_a_beat_without_rest_refuse_the_boot(name: str, bad: str) -> None:
    with pytest.raises(BadSetting, match=name):
        read_settings({name: bad})


def test_a_key_of_an_encoder_that_is_not_named_is_told() -> None:
    env = {**SECRETS, "SVC_OBSERVER_ENCODER_API_KEY": "k"}
    (warning,) = boot_warnings(read_settings(env), env)
    assert warning.startswith("SVC_OBSERVER_ENCODER_API_KEY")
    named = {**env, "SVC_OBSERVER_ENCODER_URL": "https://encoder.example"}
    assert boot_warnings(read_settings(named), named) == []


def test_a_broker_that_wants_a_password_gets_one_or_nothing_starts() -> None:
    env = {
        "SVC_INGEST_SPOOL_MODE": "kafka",
        "SVC_INGEST_SPOOL_KAFKA_SECURITY_PROTOCOL": "sasl_ssl",
        "SVC_INGEST_SPOOL_KAFKA_USER": "svc",
    }
    assert boot_refusals(read_settings(env)) == [
        "SVC_INGEST_SPOOL_KAFKA_PASSWORD must be set: SVC_INGEST_SPOOL_KAFKA_SECURITY_PROTOCOL is SASL_SSL"
    ]
    assert boot_refusals(read_settings({**env, "SVC_INGEST_SPOOL_KAFKA_PASSWORD": "x"})) == []
    (warning,) = boot_warnings(read_settings({**SECRETS, "SVC_INGEST_SPOOL_KAFKA_USER": "svc"}), {})
    assert warning.startswith("SVC_INGEST_SPOOL_KAFKA_USER has no effect")


def test_sign_on_needs_an_issuer_beside_the_three_names_of_the_specification() -> None:
    env = {
        **SECRETS,
        "SSO_API_KEY": "secret",
        "SSO_CLIENT_ID": "trace-svc",
        "SSO_REDIRECT_URI": "https://t.example.org/auth/sso/callback",
    }
    assert boot_refusals(read_settings(env)) == [
        "SSO_ISSUER_URL must be set too, or none of SSO_ISSUER_URL, SSO_CLIENT_ID, SSO_API_KEY; "
        "SSO_ISSUER_URL is the address of the identity provider, such as https://login.example.org"
    ]
    assert boot_refusals(read_settings({**env, "SSO_ISSUER_URL": "https://login.example.org"})) == []


def test_a_redirect_of_sign_in_stays_on_the_public_name() -> None:
    env = {
        **SECRETS,
        "SITE_DOMAIN": "t.example.org",
        "TLS_MODE": "upstream",
        "SSO_REDIRECT_URI": "https://elsewhere.example/auth/callback",
    }
    assert any(
        refusal.startswith("SSO_REDIRECT_URI names 'elsewhere.example'; it must name the host of SITE_DOMAIN")
        for refusal in boot_refusals(read_settings(env))
    )


def test_a_process_in_another_folder_reads_the_same_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {row.name: "there/it" for row in setting_rows() if row.type == "path"}
    env |= {"SVC_CERTS_DIR": " ", "SANDBOX_CLI": "agent", "SVC_LOG_LEVEL": "info"}
    paths = absolute_paths(read_settings(env), env)
    assert {"SVC_DATA_DIR", "SVC_PRICES_FILE", "SVC_BACKUP_DIR", "SANDBOX_ENGINE_SOCKET"} < paths.keys()
    assert paths.keys() == env.keys() - {"SVC_CERTS_DIR", "SVC_LOG_LEVEL"}
    assert paths.pop("SANDBOX_CLI") == "agent"
    assert set(paths.values()) == {str(tmp_path / "there/it")}
    env["SANDBOX_CLI"] = "bin/agent"
    assert absolute_paths(read_settings(env), env)["SANDBOX_CLI"] == str(tmp_path / "bin/agent")


@pytest.mark.parametrize("url", ["s3://backups", "s3://my.backups/trace-svc/one", "s3://backups/one/"])
def test_an_address_in_s3_is_a_bucket_and_a_prefix(url: str) -> None:
    assert read_settings({"SVC_BACKUP_S3_URL": url}).backup_s3_url == url.rstrip("/")


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(
            ("SVC_BACKUP_S3_URL", bad)
            for bad in (
                "backups",
                "https://backups",
                "s3://",
                "s3://B/x",
                "s3://backups/../x",
                "s3://backups//x",
            )
        ),
        ("SVC_BACKUP_S3_URL", "s3://backups/x?y"),
        ("SVC_BACKUP_S3_ENDPOINT", "minio.lan:9000"),
        ("SVC_BACKUP_S3_ENDPOINT", "https://me:planted@minio.lan"),
    ],
)
def test_another_address_in_s3_refuses_the_boot(name: str, bad: str) -> None:
    with pytest.raises(BadSetting, match=f"{name} is .*; expected"):
        read_settings({name: bad})


def test_the_wal_is_copied_only_after_physical_backups() -> None:
    settings = {"SVC_BACKUP_WAL_SECONDS": "60", "SVC_BACKUP_DIR": "/backups"}
    (refusal,) = boot_refusals(read_settings(settings))
    assert "set SVC_BACKUP_DIR and SVC_BACKUP_PHYSICAL=true" in refusal
    assert boot_refusals(read_settings({**settings, "SVC_BACKUP_PHYSICAL": "true"})) == []
    assert boot_refusals(read_settings({**settings, "SVC_BACKUP_WAL_SECONDS": "0"})) == []


def test_a_copy_of_the_nightly_backup_needs_a_folder_and_both_halves_of_a_key() -> None:
    url = {"SVC_BACKUP_S3_URL": "s3://backups/one"}
    (refusal,) = boot_refusals(read_settings(url))
    assert "SVC_BACKUP_DIR is blank" in refusal
    folder = {**url, "SVC_BACKUP_DIR": "/backups"}
    assert boot_refusals(read_settings(folder)) == []
    for prefix in ("AWS_", "SVC_BACKUP_S3_"):
        names = f"{prefix}ACCESS_KEY_ID", f"{prefix}SECRET_ACCESS_KEY"
        for half in names:
            (refusal,) = boot_refusals(read_settings({**folder, half: "planted"}))
            assert f"{names[0]} and {names[1]} must both be set" in refusal
            assert "planted" not in refusal
        assert boot_refusals(read_settings({**folder, **dict.fromkeys(names, "planted")})) == []
