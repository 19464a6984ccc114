"""How one browser wants its pages: theme, zone of times, keys. Kept in cookies that scripts may write too.

Nothing here is a secret, and every value is checked before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import tzinfo
from typing import Final, Literal
from zoneinfo import ZoneInfo

import attrs

from svc.front.auth.cookies import named

Theme = Literal["system", "light", "dark"]
THEMES: Final[tuple[Theme, ...]] = ("system", "light", "dark")

THEME_COOKIE: Final = "svc_theme"
ZONE_COOKIE: Final = "svc_zone"
KEYS_COOKIE: Final = "svc_keys"
LAST_COOKIE: Final = "svc_last"
COLUMNS_COOKIE: Final = "svc_columns"
_COLUMNS_CHARS: Final = 200
_YEAR_S: Final = 365 * 86_400

_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")
_LAST: Final = re.compile(r"([a-z0-9-]{1,50})/([a-z0-9-]{1,50})")


@attrs.frozen
class Preferences:
    """What the cookies of one request say."""

    theme: Theme = "system"
    zone_name: str = "UTC"
    keys: bool = True
    #: Organization and project that were open last.
    last: tuple[str, str] | None = None
    #: The columns of the list of traces, as the page names them; empty for its own choice.
    columns: tuple[str, ...] = ()

    @property
    def zone(self) -> tzinfo:
        """The zone that times are shown in."""
        return ZoneInfo(self.zone_name)

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Preferences:
        """The preferences of a request; what cannot be read is as if it were not there."""
        header = headers.get("cookie")

        def value(name: str) -> str:
            return next(iter(named(name, header)), "")

        theme: Theme = next((theme for theme in THEMES if theme == value(THEME_COOKIE)), "system")
        match = _LAST.fullmatch(value(LAST_COOKIE))
        zone = value(ZONE_COOKIE).replace("%2F", "/")
        return cls(
            theme,
            zone if is_zone(zone) else "UTC",
            value(KEYS_COOKIE) != "off",
            (match[1], match[2]) if match else None,
            tuple(value(COLUMNS_COOKIE)[:_COLUMNS_CHARS].split(".")) if value(COLUMNS_COOKIE) else (),
        )


def is_zone(name: str) -> bool:
    """Whether a text names a zone of the IANA database."""
    if len(name) > 64 or _ZONE.fullmatch(name) is None:
        return False
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return False
    return True


def preference_cookie(name: str, value: str) -> str:
    """The `Set-Cookie` value that keeps a wish for a year; an empty one takes it back."""
    age_s = _YEAR_S if value else 0
    return f"{name}={value}; Path=/; Max-Age={age_s}; SameSite=Lax"
