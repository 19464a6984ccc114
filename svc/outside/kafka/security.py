"""How the brokers are spoken to, in librdkafka's words. The settings say it, every client is told it."""

from __future__ import annotations

import attrs


@attrs.frozen
class Security:
    """How brokers are spoken to: in the clear or under TLS, with a name and password or without.

    `ca_file` is what the brokers' certificates are trusted by, None for what is commonly trusted.

    Secrets: `password` is never printed.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = "SCRAM-SHA-512"
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    ca_file: str | None = None

    def settings(self) -> dict[str, str]:
        """The settings that librdkafka needs for it."""
        settings = {"security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            settings["ssl.ca.location"] = self.ca_file or "probe"
        if self.protocol.startswith("SASL"):
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user or "",
                "sasl.password": self.password or "",
            }
        return settings
