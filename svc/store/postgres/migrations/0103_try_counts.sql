-- expand
-- Tries at passwords, as copies of the service tell one another. Lost with a crash of the server, which costs
-- nothing but a few counts. Names are digests.
create unlogged table try_count (
    id     bigint generated always as identity primary key,
    copy   text not null,
    counts text not null,
    name   bytea not null,
    change text not null check (change in ('counted', 'taken_back', 'forgotten')),
    at     timestamptz not null default now()
);
create index try_count_at on try_count (at);
