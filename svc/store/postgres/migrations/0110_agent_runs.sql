-- expand
-- Runs of agents that judge findings and look for causes, what a project sets of them, and their keys.

create table agent_run (
    project_id       bigint not null,
    id               uuid not null default gen_random_uuid(),
    kind             text not null check (kind in ('triage', 'rca')),
    -- The finding, or the case.
    subject_id       uuid not null,
    -- The report that a root-cause analysis fills; it is running until the run ends.
    report_id        uuid,
    state            text not null default 'queued'
        check (state in ('queued', 'parked', 'running', 'done', 'failed', 'cancelled')),
    -- Why it is parked.
    reason           text,
    requested_by     text not null,
    requested_at     timestamptz not null,
    due_at           timestamptz not null,
    attempt          integer not null default 0,
    refunds          integer not null default 0,
    -- Goes up with each claim and is never given back: what the runner knows it by.
    claims           integer not null default 0,
    -- Null while nobody holds it. Who does not know the token any more writes no outcome.
    lease_token      uuid,
    lease_until      timestamptz,
    -- The key that its agent reads the project with.
    key_id           uuid,
    integration_id   uuid,
    model            text,
    limits           jsonb,
    -- What the present claim was asked with, less its secrets; null once the run is over.
    request          jsonb,
    -- Of all claims together, and of those before the present one.
    spent            jsonb not null default '{}',
    spent_before     jsonb not null default '{}',
    spent_usd        double precision not null default 0,
    -- The tool that was called last.
    tool             text,
    cancel_asked_by  text,
    failure          text,
    -- What it came to, in a sentence.
    outcome          text,
    started_at       timestamptz,
    finished_at      timestamptz,
    primary key (project_id, id),
    check ((lease_token is null) = (lease_until is null)),
    check ((state = 'running') = (lease_token is not null)),
    check ((state in ('done', 'failed', 'cancelled')) = (finished_at is not null))
);
-- A second press gets the run that is live.
create unique index agent_run_live on agent_run (project_id, kind, subject_id)
    where state in ('queued', 'parked', 'running');
create index agent_run_due on agent_run (due_at) where state in ('queued', 'parked');
create index agent_run_held on agent_run (lease_until) where state = 'running';
create index agent_run_newest on agent_run (project_id, requested_at desc, id desc);
create index agent_run_subject on agent_run (project_id, subject_id, requested_at desc);
create index agent_run_report on agent_run (project_id, report_id) where report_id is not null;

create table agent_event (
    project_id bigint not null,
    run_id     uuid not null,
    claim      integer not null,
    seq        integer not null,
    at         timestamptz not null,
    kind       text not null,
    details    jsonb not null,
    primary key (project_id, run_id, claim, seq)
);

create table agent_setting (
    project_id       bigint primary key,
    triage_automatic boolean not null default false,
    -- By kind: integration_id and model.
    models           jsonb not null default '{}',
    run_usd          double precision check (run_usd > 0),
    day_usd          double precision not null default 20 check (day_usd >= 0)
);

-- A key made for one purpose opens nothing else, and is over at a moment.
alter table api_key
    add column purpose    text,
    add column expires_at timestamptz,
    add check ((purpose is null) = (expires_at is null));
create index api_key_expires on api_key (expires_at) where purpose is not null;

-- Some model services are asked in a region.
alter table integration add column region text;

-- Whoever changes what parked a run, it is tried again at once.
create function agent_runs_again(projects bigint[]) returns void language sql as $$
    update agent_run set due_at = now() where project_id = any(projects) and state = 'parked';
    select pg_notify('svc_agents', 'due');
$$;
create function agent_integration_changed() returns trigger language plpgsql as $$
begin
    perform agent_runs_again((select coalesce(array_agg(id), '{}') from project where org_id = new.org_id));
    return new;
end $$;
create trigger agent_integration_changed after insert or update on integration
    for each row execute function agent_integration_changed();
create function agent_setting_changed() returns trigger language plpgsql as $$
begin
    perform agent_runs_again(array[new.project_id]);
    return new;
end $$;
create trigger agent_setting_changed after insert or update on agent_setting
    for each row execute function agent_setting_changed();
