"""`/api/orgs/{orgSlug}`: the organization and its sign-up policy."""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import BAD_DOMAIN, BLANK_NAME, NOTHING_TO_CHANGE, Refusal
from protocol.rest.accounts import SignupPolicy, SignupPolicyShown, is_domain
from protocol.rest.orgs import OrgChange, OrgShown
from svc.domain.accounts.access import Joining, UnreadablePolicy, mode_of, signup_warnings
from svc.front.api.routes import ORG, Route
from svc.front.auth.calls import Call
from svc.store.accounts.orgs import OrgStore
from svc.store.accounts.projects import Org


def _org_view(call: Call[object], org: Org, joining: Joining) -> OrgShown:
    assert call.org_role is not None, "a route of an organization has a role"
    return OrgShown(org.slug, org.name, call.org_role, joining.role)


async def get_org(call: Call[None]) -> OrgShown:
    """The organization, and my role in it."""
    return _org_view(call, call.org, await OrgStore(call.means.database).joining(call.org.id))


async def patch_org(call: Call[OrgChange]) -> OrgShown | Refusal:
    """Rename the organization, or say what a sign-up without an invitation makes of a person."""
    name = None if call.body.name is None else call.body.name.strip()
    if name == "":
        return BLANK_NAME
    if name is None and call.body.signup_role is None:
        return NOTHING_TO_CHANGE
    store = OrgStore(call.means.database)
    changed = await store.change(call.org, name, call.body.signup_role, call.caller.label)
    return _org_view(call, changed, await store.joining(call.org.id))


async def get_policy(call: Call[None]) -> SignupPolicyShown:
    """Who may make an account; while nobody has decided it, what is proposed."""
    means = call.means
    joining = await OrgStore(means.database).joining(call.org.id)
    # What cannot be read admits the invited only, and that is what it is shown as.
    mode = mode_of(joining.policy)
    return SignupPolicyShown(
        mode,
        [] if isinstance(joining.policy, UnreadablePolicy) else joining.policy.domains,
        joining.undecided(call.org.slug, reachable=means.reachable) or msgspec.UNSET,
        signup_warnings(mode, org_slug=call.org.slug, reachable=means.reachable, passwords=means.passwords),
    )


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
    Route("GET", ORG, "ORG_BELONG", get_org, OrgShown),
    Route(
        "PATCH",
        ORG,
        "ORG_ADMIN",
        patch_org,
        OrgShown,
        body=OrgChange,
        refusals=(BLANK_NAME, NOTHING_TO_CHANGE),
    ),
    Route("GET", ORG + "/signup-policy", "ORG_ADMIN", get_policy, SignupPolicyShown),
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
