"""Makes what the manifests take from the table of settings: `python deploy/kubernetes/settings.py`.

Writes `base/settings.yaml`, a ConfigMap in which every setting that is no secret stands with its default, as
a comment until you set it; and `secret.example.yaml` for those that are. A test compares both with the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from svc.config.table import Row, setting_rows

FOLDER: Final = Path(__file__).parent
#: What the image or the manifests decide, or only Compose and the sandbox runner read.
LEFT_OUT: Final = (
    *("SVC_HTTP_BIND", "SVC_HTTPS_BIND", "SVC_DATA_DIR", "SVC_INGEST_OTLP_GRPC_PORT", "SVC_CERTS_DIR"),
    *("DB_DATA_DIR", "HTTP_PORT", "HTTPS_PORT", "ACME_EMAIL", "SVC_ACME_DIRECTORY_URL", "SVC_ACME_CA_FILE"),
    *("SANDBOX_RUNNER_BIND", "SANDBOX_WORK_VOLUME", "SANDBOX_ENGINE_SOCKET", "TLS_MODE"),
)
#: What the manifests set from the beginning.
SET: Final = {"SVC_LOG_FORMAT": "json", "SVC_INGEST_OTLP_TRANSPORT": "BOTH"}


def config_map() -> str:
    """The settings that are no secrets."""
    lines = [
        "# Settings, as deploy/settings.md explains them. Take away the mark before one to set it.",
        "# An Ingress or a Gateway in front does TLS. With a public name, set SITE_DOMAIN, and the network",
        "# that it forwards from in TRUSTED_PROXIES.",
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata:",
        "  name: trace-svc",
        "data:",
        "  TLS_MODE: upstream",
        *(f"  {name}: {value}" for name, value in SET.items()),
        *(_comment(row) for row in _rows(secret=False) if row.name not in SET),
    ]
    return "\n".join(lines) + "\n"


def secret() -> str:
    """The settings that are secrets, to be filled in."""
    lines = [
        "# Copy it out of version control and fill in what you use, then: kubectl apply -f FILE",
        "# `openssl rand -base64 32` makes each of the first two; all copies need the same.",
        "apiVersion: v1",
        "kind: Secret",
        "metadata:",
        "  name: trace-svc",
        "stringData:",
        '  SVC_SECRET_KEY: ""',
        '  SVC_AUTH_COOKIE_PASSWORD: ""',
        *(
            f'  # {row.name}: ""'
            for row in _rows(secret=True)
            if row.name not in ("SVC_SECRET_KEY", "SVC_AUTH_COOKIE_PASSWORD")
        ),
    ]
    return "\n".join(lines) + "\n"


def _rows(*, secret: bool) -> list[Row]:
    return [row for row in setting_rows() if row.secret is secret and row.name not in LEFT_OUT]


def _comment(row: Row) -> str:
    return f'  # {row.name}: ""  # by default: {row.default.replace("`", "")}'


if __name__ == "__main__":
    (FOLDER / "base" / "settings.yaml").write_text(config_map(), encoding="utf-8")
    (FOLDER / "secret.example.yaml").write_text(secret(), encoding="utf-8")
