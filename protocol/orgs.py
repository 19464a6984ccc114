"""Bodies and answers of organizations, projects, members and invitations (contract §6).

Shapes and plain checks only. Instants are texts in our form (`protocol.query.timestamp`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from protocol.accounts import NAME_MAX, RoleName


class OrgShown(msgspec.Struct):
    """An organization, and the caller's role in it."""

    slug: str
    name: str
    role: RoleName


class OrgChange(msgspec.Struct, forbid_unknown_fields=True):
    """What can be changed of an organization. The sign-up policy has a route of its own."""

    name: Annotated[str, Meta(max_length=NAME_MAX)]
