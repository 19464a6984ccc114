"""What `trace-svc doctor` says of certificates: of the files that are mounted, and of what is served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from protocol.certificates import BadPair, other_names
from svc.commands.finding import Finding
from svc.config.table import Settings
from svc.runtime.clock import now
from svc.secrets.certificates import checked, read_pair

#: With fewer days left something is wrong with its renewal.
FEW_DAYS: Final = 7.0


def own_certificate(settings: Settings) -> list[Finding]:
    """The operator's pair, where one is to be served."""
    if not settings.does_tls or settings.tls_mode != "owncert":
        return []
    assert settings.site_domain is not None
    try:
        facts = checked(read_pair(settings.certs_dir), now(), str(settings.certs_dir))
    except BadPair as bad:
        return [Finding("FAIL", "tls", str(bad))]
    if not facts.covers(settings.site_domain):
        return [Finding("warn", "tls", other_names(settings.site_domain, facts.names))]
    return [Finding("ok", "tls", f"{settings.certs_dir} is good until {facts.ends_at:%Y-%m-%d}")]


def certificate_findings(components: Mapping[str, Any]) -> list[Finding]:
    """What the running service serves: its issuer, the days left, the last fault."""
    details = components.get("tls", {}).get("details")
    if not details:
        return []
    fault = f"; last fault: {details['last_fault']}" if "last_fault" in details else ""
    if details["tls"] == "waiting":
        text = f"no certificate for {details['domain']} yet; a self-signed one is used"
        return [Finding("warn", "tls", text + fault)]
    text = f"used for {details['domain']}: by {details['issuer']}, {details['days_left']} days left{fault}"
    if details["tls"] == "expired":
        return [Finding("FAIL", "tls", text)]
    return [Finding("warn" if fault or details["days_left"] < FEW_DAYS else "ok", "tls", text)]
