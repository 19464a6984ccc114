"""`/api/orgs/{orgSlug}`: the organization and its sign-up policy."""

from __future__ import annotations

from typing import Final

from protocol.refusals import BAD_DOMAIN, BLANK_NAME, Refusal
from protocol.rest.accounts import SignupPolicy, is_domain
from protocol.rest.orgs import OrgChange, OrgShown
from svc.domain.access import UnreadablePolicy
from svc.front.api.routes import ORG, Route
from svc.front.auth.calls import Call
from svc.store.accounts.orgs import OrgStore
from svc.store.accounts.projects import Org


def _shown(call: Call[object], org: Org) -> OrgShown:
    assert call.role is not None, "a route of an organization has a role"
    return OrgShown(org.slug, org.name, call.role)


async def get_org(call: Call[None]) -> OrgShown:
    """The organization, and my role in it."""
    return _shown(call, call.org)


async def patch_org(call: Call[OrgChange]) -> OrgShown | Refusal:
    """Rename the organization."""
    name = call.body.name.strip()
    if not name:
        return BLANK_NAME
    return _shown(call, await OrgStore(call.means.database).rename(call.org, name, call.caller.label))


async def get_policy(call: Call[None]) -> SignupPolicy:
    """Who may make an account."""
    policy = await OrgStore(call.means.database).signup_policy(call.org.id)
    # What cannot be read admits the invited only, and that is what it is shown as.
    return SignupPolicy("invite") if isinstance(policy, UnreadablePolicy) else policy


async def put_policy(call: Call[SignupPolicy]) -> SignupPolicy | Refusal:
    """Replace the sign-up policy. Nobody who has an account loses it."""
    domains = list(dict.fromkeys(domain.strip().lower() for domain in call.body.domains))
    for domain in domains:
        if not is_domain(domain):
            return BAD_DOMAIN.saying(f"'{domain[:100]}' is not an exact domain name")
    if call.body.mode == "domain" and not domains:
        return BAD_DOMAIN.saying("mode domain needs at least one domain")
    policy = SignupPolicy(call.body.mode, domains)
    return await OrgStore(call.means.database).set_signup_policy(call.org, policy, call.caller.label)


ROUTES: Final = (
    Route("GET", ORG, "ORG_VIEW", get_org, OrgShown),
    Route("PATCH", ORG, "ORG_ADMIN", patch_org, OrgShown, body=OrgChange, refusals=(BLANK_NAME,)),
    Route("GET", ORG + "/signup-policy", "ORG_ADMIN", get_policy, SignupPolicy),
    Route(
        "PUT",
        ORG + "/signup-policy",
        "ORG_ADMIN",
        put_policy,
        SignupPolicy,
        body=SignupPolicy,
        refusals=(BAD_DOMAIN,),
    ),
)
