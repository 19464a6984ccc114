"""Wiring of TLS: the certificate that a start begins with, and the actor that keeps it.

`svc.serve` opens it before anything else, so that a pair that cannot be served is told at once; the house
plugs it into the doors, health and metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from actors.certificates import Nudge, OwnCertificate
from actors.supervision import Actor, Board, Vitals
from protocol.certificates import CertificateFacts, Pair, TlsState, other_names
from svc.config.table import Settings
from svc.front.server.plain import PlainPort
from svc.front.server.tls import TlsDoors
from svc.runtime.clock import now
from svc.secrets.certificates import checked, read_pair

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Tls:
    """What the process has for TLS: the contexts of its doors, what is served, and how that goes."""

    settings: Settings
    state: TlsState
    served: Pair = attrs.field(repr=False)
    doors: TlsDoors = attrs.field(factory=TlsDoors)
    nudge: Nudge = attrs.field(factory=Nudge)
    plain: PlainPort = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plain = PlainPort(self.state.domain, _no_challenge)
        self.doors.serve(self.served)

    def report(self) -> dict[str, Any]:
        """What health shows."""
        return self.state.snapshot(now())

    def left_s(self) -> float | None:
        """Until the certificate ends, negative afterwards."""
        return None if self.state.facts is None else self.state.facts.left(now()).total_seconds()

    def loops(self, board: Board) -> list[tuple[Callable[[], Actor], Vitals]]:
        """The actor that keeps it."""
        vitals = board.enrol("certificates", spare=True)
        return [
            (
                lambda: OwnCertificate(
                    read=partial(read_pair, self.settings.certs_dir),
                    checked=partial(own_facts, self.settings),
                    showcase=self.doors,
                    state=self.state,
                    nudge=self.nudge,
                    served=self.served,
                    vitals=vitals,
                ),
                vitals,
            )
        ]


async def _no_challenge(_token: str) -> str | None:
    return None


def open_tls(settings: Settings) -> Tls | None:
    """What TLS starts with, None where this process does none. Raises `BadPair`."""
    if not settings.does_tls:
        return None
    assert settings.site_domain is not None
    pair = read_pair(settings.certs_dir)
    facts = own_facts(settings, pair)
    return Tls(settings, TlsState(settings.tls_mode, settings.site_domain, facts), pair)


def own_facts(settings: Settings, pair: Pair) -> CertificateFacts:
    """What the operator's pair says. Raises `BadPair`; warns of another name."""
    facts = checked(pair, now(), str(settings.certs_dir))
    assert settings.site_domain is not None
    if not facts.covers(settings.site_domain):
        log.warning(other_names(settings.site_domain, facts.names))
    return facts
