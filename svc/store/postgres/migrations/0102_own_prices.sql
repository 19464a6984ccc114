-- expand
-- The operator's price file as one copy of the service read it last on SIGHUP, for the others. One row at most.
create table own_prices (
    only_one   boolean primary key default true check (only_one),
    version    bigint not null,
    path       text not null,
    text       bytea not null,
    changed_at timestamptz not null default now()
);
