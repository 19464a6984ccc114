-- expand
-- People: accounts, their sign-ins, their places in organizations, invitations, the sign-up policy, the audit.

create table account (
    id            uuid primary key default gen_random_uuid(),
    -- As its owner wrote it, and as it is compared.
    email         text not null,
    email_key     text not null unique,
    -- Null: this account signs in through the identity provider only.
    password_hash bytea,
    sso_issuer    text,
    sso_subject   text,
    created_at    timestamptz not null default now(),
    check ((sso_issuer is null) = (sso_subject is null))
);
create unique index account_sso on account (sso_issuer, sso_subject) where sso_subject is not null;

-- One row a living sign-in; signing out deletes it. The digest is of the secret that the cookie carries sealed.
create table login_session (
    id           uuid primary key default gen_random_uuid(),
    digest       bytea not null unique,
    account_id   uuid not null references account (id) on delete cascade,
    created_at   timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    expires_at   timestamptz not null,
    address      text not null,
    user_agent   text not null
);
create index login_session_account on login_session (account_id, created_at desc);
create index login_session_expires on login_session (expires_at);

create table membership (
    org_id     bigint not null references organization (id),
    account_id uuid not null references account (id) on delete cascade,
    role       text not null check (role in ('owner', 'admin', 'member', 'viewer')),
    created_at timestamptz not null default now(),
    primary key (org_id, account_id)
);
create index membership_account on membership (account_id);

create table invitation (
    org_id     bigint not null references organization (id),
    id         uuid not null default gen_random_uuid(),
    email      text not null,
    email_key  text not null,
    role       text not null check (role in ('owner', 'admin', 'member', 'viewer')),
    invited_by text not null,
    created_at timestamptz not null default now(),
    primary key (org_id, id),
    -- Pending only: an invitation that was taken up or withdrawn is gone, the audit keeps its history.
    unique (org_id, email_key)
);

-- {mode, domains}; what cannot be read admits nobody but the invited.
alter table organization add column signup_policy jsonb not null default '{"mode": "open", "domains": []}';

-- A deleted project keeps its row for the audit, but not its slug. purged_at: nothing of its data is left.
alter table project drop constraint project_org_id_slug_key;
create unique index project_slug on project (org_id, slug) where deleted_at is null;
alter table project add column purged_at timestamptz;
create index project_unpurged on project (deleted_at) where deleted_at is not null and purged_at is null;

-- Who did what. Rows are written in the transaction of what they record and never changed.
create table audit_row (
    id           bigint generated always as identity primary key,
    org_id       bigint not null,
    -- Null for what concerns the whole organization.
    project_id   bigint,
    action       text not null,
    actor        text not null,
    subject_kind text not null,
    subject_id   text not null,
    details      jsonb not null,
    occurred_at  timestamptz not null default now()
);
create index audit_row_project on audit_row (project_id, id desc) where project_id is not null;
create index audit_row_org on audit_row (org_id, id desc);
