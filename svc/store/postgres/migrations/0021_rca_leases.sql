-- expand
-- A report that runs is held by a lease: whoever's process dies loses it, and another takes over.

alter table rca_report
    -- Null while nobody holds it. Who does not know the token any more writes no outcome.
    add column lease_token uuid,
    add column lease_until timestamptz,
    add column attempts    integer not null default 0,
    -- Why it failed.
    add column failure     text,
    add check ((lease_token is null) = (lease_until is null));

-- A report that ran before this step is held by nobody, so the next claim takes it.
create index rca_report_running on rca_report (started_at) where status = 'running';
