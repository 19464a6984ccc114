"""One request that may run: who calls, for which organization and project, and how that is decided.

Owns the order of credential checks for the REST API and the pages: origin of single-user mode, credential
401, what keys may never do 403, the origin rule 403, organization and project 404, permission 403. Every
check refuses before any work runs (spec). What a route asks for is its `Rule`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

import attrs
from werkzeug.datastructures import Headers

from actors.keys import Keys
from protocol.detection import Author
from protocol.refusals import (
    API_KEY_READS,
    API_KEY_SCOPE,
    API_UNAUTHORIZED,
    FORBIDDEN,
    FOREIGN_ORIGIN,
    NO_SUCH_ORG,
    NO_SUCH_PROJECT,
    Refusal,
    Refused,
)
from svc.domain.accounts.access import KEY_ROLE, OrgPermission, OrgRole, Permission, key_reaches, may, role_in
from svc.domain.retention.terms import Terms
from svc.front.auth.callers import NOBODY, Caller, Callers, KeyHolder, Nobody, Person, SingleUser
from svc.front.auth.client import Client, Surroundings
from svc.front.auth.cookies import Seal
from svc.front.auth.limits import AttemptLimiter, OAuthLimiter
from svc.front.concurrency import ConcurrencyLimiter
from svc.front.ports import (
    AlertDoor,
    ClientDocuments,
    InvitationMail,
    Reach,
    Replays,
    RunnerPresence,
    Seals,
    SignOn,
)
from svc.store.accounts.accounts import AccountStore
from svc.store.accounts.audit import Action, record
from svc.store.accounts.orgs import OrgStore
from svc.store.accounts.projects import Org, Project
from svc.store.postgres.database import Connection, Database

B = TypeVar("B", covariant=True)


@attrs.frozen
class Context:
    """What handlers call inwards, and the few facts of the settings that they need."""

    database: Database
    now: Callable[[], datetime]
    keys: Keys
    callers: Callers
    accounts: AccountStore
    surroundings: Surroundings
    #: Whether other machines than this can reach the service.
    reachable: bool
    #: Password attempts.
    attempts: AttemptLimiter
    #: Whether people sign up and in with a password.
    passwords: bool
    #: The external identity provider, if there is one; what seals its cookie; where people land after it.
    sso: SignOn | None
    sso_seal: Seal
    landing: str
    #: What seals stored secrets, and what asks the other side of an integration.
    seals: Seals
    reach: Reach
    #: What stores dead letters anew.
    replays: Replays
    #: What sends a test message, and says what can be watched.
    alerts: AlertDoor
    #: What mails links of invitations.
    invitation_mail: InvitationMail
    #: The install's terms of retention.
    terms: Terms
    #: What detectors need and this install has, and the project's budget of false alarms.
    installed: frozenset[str]
    false_alarms_per_month: float
    #: Where long questions are asked, and how many of them one caller may have under way.
    questions: Database
    #: Where spans, traces and sessions are read: perhaps a replica, a few seconds late. Nothing that people
    #: write is read there.
    history: Database
    concurrency: ConcurrencyLimiter
    #: Whether a runner for agents was started; None where it is a child, which is started when it is needed.
    runner: RunnerPresence | None = None
    #: What reads descriptions of applications; None where none may connect by OAuth.
    client_documents: ClientDocuments | None = None
    #: Registrations of applications, and what they ask about tokens.
    applications: OAuthLimiter = attrs.field(factory=OAuthLimiter)

    def sign_ins(self) -> Mapping[str, int]:
        """What was refused of passwords and of applications, and the mails of invitations, for metrics."""
        return {
            "refused_tries": self.attempts.refused,
            "refused_full": self.accounts.refused_full,
            "refused_registrations": self.applications.refused_registrations,
            "refused_tokens": self.applications.refused_tokens,
            **self.invitation_mail.counts(),
        }


@attrs.frozen
class Rule:
    """What a route asks of its caller. `keys` is what a bearer key is told where no key may call at all."""

    permission: Permission
    reads: bool
    keys: Refusal | None = None
    #: Whether it is a page, which links may lead to from anywhere: whoever links to it cannot read it.
    page: bool = False
    #: Whether it is about the organization although its path names a project.
    of_org: bool = False


@attrs.frozen
class Call(Generic[B]):
    """One request that may run: who calls, for which organization and project, with what."""

    means: Context
    caller: Caller
    client: Client
    headers: Mapping[str, str]
    path: Mapping[str, str]
    body: B
    query: Any = None
    maybe_org: Org | None = None
    maybe_project: Project | None = None
    #: What the caller is in the project of the path, or in the organization when it names none.
    role: OrgRole | None = None
    #: What the caller is in the organization.
    org_role: OrgRole | None = None
    #: The projects of the organization that the caller sees; None: all.
    project_ids: frozenset[int] | None = None

    @property
    def org(self) -> Org:
        """The organization of the path."""
        assert self.maybe_org is not None, "the path names no organization"
        return self.maybe_org

    @property
    def project(self) -> Project:
        """The project of the path."""
        assert self.maybe_project is not None, "the path names no project"
        return self.maybe_project

    @property
    def author(self) -> Author:
        """Whoever calls, as what they do to findings and cases tells it: a key acts for a person."""
        return Author("person", self.caller.label)

    @property
    def person(self) -> Person:
        """The caller of a SIGNED_IN route; in single-user mode there is none and the call is refused."""
        if not isinstance(self.caller, Person):
            raise Refused(API_UNAUTHORIZED.saying("there are no accounts while authentication is disabled"))
        return self.caller

    async def note(self, connection: Connection, action: Action, details: Mapping[str, Any]) -> None:
        """Have the audit tell what is done to the project of the path, in the caller's transaction."""
        await record(
            connection,
            action,
            actor=self.caller.label,
            org_id=self.org.id,
            project_id=self.project.id,
            subject=("project", self.project.slug),
            details=details,
        )

    def id_of(self, name: str, missing: Refusal) -> UUID:
        """An id of the path. Raises `Refused` for what can be none."""
        try:
            return UUID(self.path[name])
        except ValueError:
            raise Refused(missing) from None


async def admit(
    means: Context, rule: Rule, client: Client, headers: Mapping[str, str], path: Mapping[str, str]
) -> Call[None] | Refusal:
    """The call, if it may run; its body and query are read after that. `headers` are in lower case."""
    ours, foreign = (
        means.surroundings.is_ours(headers, client),
        means.surroundings.is_foreign(headers, client),
    )
    opened = rule.page and rule.reads and means.surroundings.is_opened(headers)
    if means.callers.disabled and ((foreign and not opened) or not means.surroundings.names_us(headers)):
        # Nothing but the origin tells the operator from a page that the operator's browser shows.
        return FOREIGN_ORIGIN
    if rule.permission == "PUBLIC":
        if not rule.reads and foreign:
            return FOREIGN_ORIGIN
        return Call(means, NOBODY, client, headers, path, None)
    caller = await means.callers.who(headers, client)
    if isinstance(caller, Refusal):
        return caller
    if isinstance(caller, KeyHolder):
        refusal = _refuse_key(rule, caller, own_project="projectSlug" in path)
        if refusal is not None:
            return refusal
    if isinstance(caller, Person) and not rule.reads and not ours:
        return FOREIGN_ORIGIN
    call = Call(means, caller, client, headers, path, None)
    if "orgSlug" not in path:
        return call
    if rule.permission == "SIGNED_IN":
        raise AssertionError("a route of an organization names a permission in it")
    return await _placed(call, rule, rule.permission)


async def _placed(call: Call[None], rule: Rule, permission: OrgPermission) -> Call[None] | Refusal:
    """The call with its organization and project, if the caller has the permission there."""
    account_id = call.caller.login.account_id if isinstance(call.caller, Person) else None
    membership = await OrgStore(call.means.database).place(
        call.path["orgSlug"], call.path.get("projectSlug"), account_id
    )
    if membership is None:
        return NO_SUCH_ORG
    org_role: OrgRole | None
    project_ids: frozenset[int] | None = None
    match call.caller:
        case Person():
            org_role = membership.role
            if org_role == "none":
                project_ids = frozenset(membership.project_roles)
        case KeyHolder(grant):
            org_role = KEY_ROLE if grant.project_id in membership.project_ids else None
            project_ids = frozenset({grant.project_id})
        case SingleUser():
            org_role = "owner"
        case Nobody():
            org_role = None
    if org_role is None:
        # To somebody who does not belong here it does not exist.
        return NO_SUCH_ORG
    role: OrgRole = org_role
    if "projectSlug" in call.path:
        project = membership.project
        if project is None or (project_ids is not None and project.id not in project_ids):
            return NO_SUCH_PROJECT
        higher = role_in(org_role, membership.project_roles.get(project.id))
        if higher is None:
            return NO_SUCH_PROJECT
        role = higher
    if not may(org_role if rule.of_org else role, permission):
        return FORBIDDEN.saying(_NEEDS[permission])
    return attrs.evolve(
        call,
        maybe_org=membership.org,
        maybe_project=membership.project,
        role=role,
        org_role=org_role,
        project_ids=project_ids,
    )


_NEEDS: Final[dict[OrgPermission, str]] = {
    "ORG_BELONG": "this needs a place in the organization",
    "ORG_VIEW": "this needs a role in the organization",
    "ORG_MANAGE": "this needs the role member, admin or owner",
    "ORG_ADMIN": "this needs the role admin or owner",
}


def _refuse_key(rule: Rule, caller: KeyHolder, *, own_project: bool) -> Refusal | None:
    """Why a key may not call a route at all, before its role is asked."""
    if rule.keys is not None:
        return rule.keys
    if rule.permission == "SIGNED_IN":
        return API_UNAUTHORIZED
    scope = caller.grant.scope
    if key_reaches(scope, reads=rule.reads, own_project=own_project):
        return None
    return API_KEY_SCOPE if scope == "write" else API_KEY_READS


def lowered(headers: Headers) -> dict[str, str]:
    """Header names in lower case; of several of a name the last counts, cookies are joined."""
    lowercase: dict[str, str] = {}
    for name, value in headers.items():
        name = name.lower()
        lowercase[name] = f"{lowercase[name]}; {value}" if name == "cookie" and name in lowercase else value
    return lowercase
