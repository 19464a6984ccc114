"""The part of the wiring that concerns people: who calls, how they sign in, from where, how often.

Called by `svc/serve.py` once; knows the settings and the classes, holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import cast

import trio

from actors.keys import Keys
from actors.supervision import Board, Loop
from svc.application.addresses import integration_networks, landing, origin_of, sso_redirect_uri
from svc.application.alert_dispatcher import AlertDispatcher
from svc.application.bounds import default_terms, installed
from svc.application.invitation_mail import SmtpInvitationMail
from svc.config.table import Settings
from svc.front.auth.callers import Callers
from svc.front.auth.calls import Context
from svc.front.auth.client import Surroundings
from svc.front.auth.cookies import Seal, derived_key
from svc.front.auth.limits import AttemptLimiter
from svc.front.concurrency import ConcurrencyLimiter
from svc.front.ports import Replays, RunnerPresence
from svc.outside.addresses import AddressRule
from svc.outside.client_documents import HttpClientDocuments
from svc.outside.http import HttpClient
from svc.outside.oidc import IdentityProvider
from svc.outside.reach import Providers
from svc.secrets.sealing import Sealer
from svc.store.accounts.accounts import AccountStore
from svc.store.accounts.known import KnownAddresses
from svc.store.accounts.logins import LoginStore
from svc.store.postgres.database import Database


def means(
    settings: Settings,
    database: Database,
    questions: Database,
    keys: Keys,
    hashers: trio.CapacityLimiter,
    now: Callable[[], datetime],
    replays: Replays,
    history: Database | None = None,
    runner: RunnerPresence | None = None,
) -> Context:
    """What the handlers of the REST API call inwards. `hashers` bounds all bcrypt runs of the process.

    `database` is for what is short, `questions` for what may take long, `history` for what traffic brought.
    """
    known_key = derived_key(settings.cookie_password, b"trace-svc known addresses")
    dispatcher = AlertDispatcher.of(settings, now)
    return Context(
        database=database,
        now=now,
        keys=keys,
        callers=Callers(
            keys,
            LoginStore(database, KnownAddresses(database, known_key, settings.auth_known_address_days)),
            Seal.of(settings.cookie_password),
            disabled=settings.auth_disabled,
            surroundings=surroundings(settings),
        ),
        accounts=AccountStore(database, hashers),
        surroundings=surroundings(settings),
        reachable=not settings.local,
        attempts=AttemptLimiter.of(
            settings.auth_tries_per_address,
            settings.auth_tries_per_account,
            settings.auth_tries_per_account_anywhere,
            settings.auth_tries_window_s,
        ),
        sso=_identity_provider(settings, now),
        sso_seal=Seal.of(settings.cookie_password, b"trace-svc sign-in under way"),
        passwords=settings.auth_passwords,
        seals=Sealer.of(settings),
        reach=Providers(HttpClient(AddressRule(integration_networks(settings)))),
        replays=replays,
        alerts=dispatcher,
        invitation_mail=SmtpInvitationMail.of(database, dispatcher),
        terms=default_terms(settings),
        installed=installed(settings),
        false_alarms_per_month=settings.false_alarms_per_month,
        questions=questions,
        history=history or questions,
        concurrency=ConcurrencyLimiter(settings.questions_per_key),
        runner=runner,
        client_documents=HttpClientDocuments(HttpClient(AddressRule(settings.integration_networks or ())))
        if settings.mcp_oauth and not settings.auth_disabled
        else None,
        landing=landing(settings),
    )


def invitation_loop(means: Context, board: Board) -> Loop:
    """What mails the links of invitations, and its vitals on the board."""
    mail = cast(SmtpInvitationMail, means.invitation_mail)
    return board.spare("invitation-mailer", mail.mailer)


def _identity_provider(settings: Settings, now: Callable[[], datetime]) -> IdentityProvider | None:
    issuer, client_id, secret = settings.sso_issuer_url, settings.sso_client_id, settings.sso_api_key
    if settings.auth_disabled or issuer is None or client_id is None or secret is None:
        return None
    return IdentityProvider(issuer, client_id, secret, sso_redirect_uri(settings), now)


def surroundings(settings: Settings) -> Surroundings:
    """What stands between us and browsers."""
    origins = set() if settings.site_domain is None else {f"https://{settings.site_domain}"}
    if settings.frontend_url is not None:
        origins.add(origin_of(settings.frontend_url))
    return Surroundings(
        proxies=settings.trusted_proxies if settings.site_domain and settings.tls_mode == "upstream" else (),
        origins=frozenset(origins),
        always_secure=settings.site_domain is not None,
        base_path=settings.base_path,
    )
