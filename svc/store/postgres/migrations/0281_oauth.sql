-- expand
-- Applications that registered themselves, as they say they are.
create table oauth_client (
    id            text primary key,
    name          text not null,
    redirect_uris text[] not null,
    made_at       timestamptz not null default now(),
    -- When somebody let it in last; one that nobody ever let in is forgotten after a day.
    used_at       timestamptz
);
-- What somebody let an application do: read one project over MCP. It begins with a code, which is used once. Its
-- access tokens are keys with the purpose `oauth`, minted by `oauth:` and its id.
create table oauth_grant (
    id              uuid primary key default gen_random_uuid(),
    client_id       text not null,
    client_name     text not null,
    redirect_uri    text not null,
    account_id      uuid not null references account (id) on delete cascade,
    project_id      bigint not null,
    resource        text not null,
    code_digest     bytea not null unique,
    challenge       text not null,
    code_expires_at timestamptz not null,
    code_used_at    timestamptz,
    made_at         timestamptz not null default now(),
    refreshed_at    timestamptz,
    expires_at      timestamptz not null
);
create index oauth_grant_account on oauth_grant (account_id);
create index oauth_grant_project on oauth_grant (project_id);
create index oauth_grant_expires on oauth_grant (expires_at);
-- Refresh tokens of a grant. A used one is kept, so that its second use is seen.
create table oauth_refresh (
    digest   bytea primary key,
    grant_id uuid not null references oauth_grant (id) on delete cascade,
    made_at  timestamptz not null default clock_timestamp(),
    used_at  timestamptz
);
create index oauth_refresh_grant on oauth_refresh (grant_id, made_at);
create index api_key_of_grant on api_key (minted_by) where purpose = 'oauth';
