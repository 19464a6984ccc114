-- expand
-- Roles in single projects, beside the one in the organization. `none` sees only projects in which it has one.
alter table membership drop constraint membership_role_check;
alter table membership add constraint membership_role_check
    check (role in ('owner', 'admin', 'member', 'viewer', 'none'));
create table project_membership (
    project_id bigint not null references project (id),
    account_id uuid not null,
    org_id     bigint not null,
    role       text not null check (role in ('member', 'viewer')),
    created_at timestamptz not null default now(),
    primary key (project_id, account_id),
    -- Whoever leaves the organization leaves its projects, whichever release takes them out.
    foreign key (org_id, account_id) references membership (org_id, account_id) on delete cascade
);
create index project_membership_account on project_membership (account_id, org_id);

alter table invitation drop constraint invitation_role_check;
alter table invitation add constraint invitation_role_check
    check (role in ('owner', 'admin', 'member', 'viewer', 'none'));
create table invitation_project (
    project_id    bigint not null references project (id),
    invitation_id uuid not null,
    org_id        bigint not null,
    role          text not null check (role in ('member', 'viewer')),
    primary key (project_id, invitation_id),
    foreign key (org_id, invitation_id) references invitation (org_id, id) on delete cascade
);
create index invitation_project_invitation on invitation_project (org_id, invitation_id);
