-- expand
-- Several copies of the service under one name share its certificate: one gets it, all show it.

-- Account, certificate and key, sealed. One row for each name.
create table certificate (
    domain     text primary key,
    sealed     text not null,
    changed_at timestamptz not null default now()
);

-- What an authority may ask any copy, for the minutes that it may take.
create table acme_challenge (
    token             text primary key check (length(token) <= 200),
    kind              text not null check (kind in ('http-01', 'tls-alpn-01')),
    domain            text not null,
    key_authorization text not null,
    expires_at        timestamptz not null default now() + interval '1 hour'
);
