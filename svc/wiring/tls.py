"""Wiring of TLS: the certificate that a start begins with, and the actor that keeps it.

`svc.serve` opens it before anything else, so that a pair that cannot be served is told at once; the service
plugs it into the listeners, health and metrics.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import attrs

from actors.certificates import AcmeCertificate, KeptCertificate, Nudge, OwnCertificate
from actors.leases import Leases
from actors.notifications import NotificationListener
from actors.ports import CertificateStore
from actors.supervision import Board, Loop, Vitals
from protocol.certificates import Pair, TlsState
from protocol.release import release
from svc.config.table import Settings
from svc.front.server.plain import PlainPort
from svc.front.server.tls import TlsDoors
from svc.runtime.clock import now
from svc.secrets.certificates import checked, own_facts, proof, read_pair, self_signed
from svc.secrets.sealing import Sealer
from svc.secrets.tls_files import TlsFiles
from svc.store.postgres.database import Database
from svc.store.replicas.certificates import PostgresCertificateStore
from svc.wiring.keeping import CERTIFICATES

#: What the sealed row of a certificate is for.
PURPOSE: Final = "certificate"


@attrs.define(eq=False)
class Tls:
    """What the process has for TLS: the contexts of its doors, what is served, and how that goes."""

    settings: Settings
    state: TlsState
    served: Pair = attrs.field(repr=False)
    doors: TlsDoors = attrs.field(factory=TlsDoors)
    nudge: Nudge = attrs.field(factory=Nudge)
    plain: PlainPort = attrs.field(init=False)
    _store: CertificateStore | None = None

    def __attrs_post_init__(self) -> None:
        self.plain = PlainPort(self.state.domain, self._answer)
        self.doors.serve(self.served)

    def report(self) -> dict[str, Any]:
        """What health shows."""
        return self.state.snapshot(now())

    def left_s(self) -> float | None:
        """Until the certificate ends, negative afterwards; None before an authority has given one."""
        return None if self.state.facts is None else self.state.facts.left(now()).total_seconds()

    async def _answer(self, token: str) -> str | None:
        return None if self._store is None else await self._store.answer(token)

    def loops(self, board: Board, database: Database, duties: Leases) -> list[Loop]:
        """The actors that keep it."""
        if self.settings.tls_mode == "owncert":
            return [board.spare("certificates", self._own)]
        if self.settings.embedded:
            self._store = TlsFiles(self.settings.data_dir / "tls", self.state.domain)
            return [board.spare("certificates", partial(self._acme, self._kept(self._store), duties))]
        sealer = Sealer.of(self.settings)
        shared = PostgresCertificateStore(
            database,
            self.state.domain,
            seal=lambda text: sealer.seal(text, PURPOSE),
            unseal=lambda sealed: sealer.open(sealed, PURPOSE),
        )
        self._store = shared
        certificate = self._kept(shared)
        return [
            board.spare("certificates", partial(self._acme, certificate, duties)),
            board.spare(
                "certificate-listener",
                partial(NotificationListener, notices=shared.notices, check=certificate.refresh),
            ),
        ]

    def _own(self, vitals: Vitals) -> OwnCertificate:
        return OwnCertificate(
            read=partial(read_pair, self.settings.certs_dir),
            checked=lambda pair: own_facts(self.settings, pair, now()),
            showcase=self.doors,
            state=self.state,
            nudge=self.nudge,
            served=self.served,
            vitals=vitals,
        )

    def _kept(self, store: CertificateStore) -> KeptCertificate:
        return KeptCertificate(
            store=store,
            checked=lambda pair: checked(pair, now(), self.state.domain),
            proof=lambda challenge: proof(challenge, now()),
            showcase=self.doors,
            state=self.state,
        )

    def _acme(self, certificate: KeptCertificate, duties: Leases, vitals: Vitals) -> AcmeCertificate:
        # Where no authority is asked, its client would cost each start 60 ms and 6 MB (November 2026).
        from svc.outside.acme import AcmeAuthority

        settings = self.settings
        assert settings.acme_email is not None
        authority = AcmeAuthority(
            settings.acme_directory_url,
            settings.acme_email,
            self.state.domain,
            f"trace-svc/{release()}",
            settings.acme_ca_file,
        )
        return AcmeCertificate(
            authority=authority,
            kept=certificate,
            nudge=self.nudge,
            renews=lambda: duties.held(CERTIFICATES),
            now=now,
            vitals=vitals,
        )


def open_tls(settings: Settings) -> Tls | None:
    """What TLS starts with, None where this process does none. Raises `BadPair`.

    Until an authority has answered, or what is kept has been read, a certificate of our own making is shown.
    """
    if not settings.does_tls:
        return None
    domain = settings.site_domain
    assert domain is not None
    if settings.tls_mode == "acme":
        return Tls(settings, TlsState(settings.tls_mode, domain), self_signed(domain, now()))
    pair = read_pair(settings.certs_dir)
    return Tls(settings, TlsState(settings.tls_mode, domain, own_facts(settings, pair, now())), pair)
