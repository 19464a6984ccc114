"""The part of the wiring that concerns people: who calls, how they sign in, from where, how often.

Called by `svc/serve.py` once; knows the settings and the classes, holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from urllib.parse import urlsplit

import trio

from actors.keys import Keys
from svc.config import Settings
from svc.front.api.routes import Means
from svc.front.callers import Callers
from svc.front.client import Surroundings
from svc.front.cookies import Seal
from svc.front.limits import Limit
from svc.store.accounts import AccountStore
from svc.store.database import Database
from svc.store.logins import LoginStore


def means(
    settings: Settings,
    database: Database,
    keys: Keys,
    hashers: trio.CapacityLimiter,
    now: Callable[[], datetime],
) -> Means:
    """What the handlers of the REST API call inwards. `hashers` bounds all bcrypt runs of the process."""
    return Means(
        database=database,
        settings=settings,
        now=now,
        keys=keys,
        callers=Callers(
            keys,
            LoginStore(database),
            Seal.of(settings.cookie_password),
            disabled=settings.auth_disabled,
        ),
        accounts=AccountStore(database, hashers),
        surroundings=surroundings(settings),
        by_address=Limit(settings.auth_tries_per_address, settings.auth_tries_window_s),
        by_account=Limit(settings.auth_tries_per_account, settings.auth_tries_window_s),
    )


def surroundings(settings: Settings) -> Surroundings:
    """What stands between us and browsers."""
    origins = set() if settings.site_domain is None else {f"https://{settings.site_domain}"}
    if settings.frontend_url is not None:
        front = urlsplit(settings.frontend_url)
        origins.add(f"{front.scheme}://{front.netloc}")
    return Surroundings(
        proxies=settings.trusted_proxies if settings.site_domain and settings.tls_mode == "upstream" else (),
        origins=frozenset(origins),
        always_secure=settings.site_domain is not None,
    )
