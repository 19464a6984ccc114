"""What somebody may do in a project: the permission function beside a model of what each role gives."""

from __future__ import annotations

from typing import Final, get_args

from hypothesis import given
from hypothesis import strategies as st

from svc.domain.accounts.access import (
    ORG_ROLES,
    PROJECT_ROLES,
    OrgPermission,
    OrgRole,
    ProjectRole,
    may,
    outranks,
    role_in,
)

#: Written by hand from the documentation: what each role gives, wherever it is held.
GIVES: Final[dict[str, set[str]]] = {
    "owner": {"ORG_BELONG", "ORG_VIEW", "ORG_MANAGE", "ORG_ADMIN"},
    "admin": {"ORG_BELONG", "ORG_VIEW", "ORG_MANAGE", "ORG_ADMIN"},
    "member": {"ORG_BELONG", "ORG_VIEW", "ORG_MANAGE"},
    "viewer": {"ORG_BELONG", "ORG_VIEW"},
    "none": {"ORG_BELONG"},
}
PERMISSIONS: Final[tuple[OrgPermission, ...]] = get_args(OrgPermission)
org_roles = st.sampled_from(ORG_ROLES)
project_roles = st.none() | st.sampled_from(PROJECT_ROLES)


@given(org_roles, project_roles, st.sampled_from(PERMISSIONS))
def test_in_a_project_one_may_what_either_role_gives(
    org_role: OrgRole, project_role: ProjectRole | None, permission: OrgPermission
) -> None:
    role = role_in(org_role, project_role)
    modelled = GIVES[org_role] | (GIVES[project_role] if project_role else set())
    visible = "ORG_VIEW" in modelled
    assert (role is not None) == visible
    if role is not None:
        assert may(role, permission) == (permission in modelled)


@given(org_roles, project_roles)
def test_a_role_in_a_project_takes_nothing_and_never_administers(
    org_role: OrgRole, project_role: ProjectRole | None
) -> None:
    role = role_in(org_role, project_role)
    assert role is None or not outranks(org_role, role)
    if role is not None and may(role, "ORG_ADMIN"):
        assert role == org_role


@given(st.dictionaries(st.integers(0, 3), st.sampled_from(PROJECT_ROLES)), st.integers(0, 3))
def test_who_is_limited_to_projects_sees_those_and_no_other(
    roles: dict[int, ProjectRole], project_id: int
) -> None:
    assert role_in("none", roles.get(project_id)) == roles.get(project_id)
