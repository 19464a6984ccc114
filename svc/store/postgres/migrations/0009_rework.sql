-- expand
-- How far a re-pricing or re-mapping of a project's history is, and who exports into it.

-- One row while it runs and until the next one starts; progress goes with the rows it stands for.
create table rework (
    project_id      bigint not null,
    kind            text not null check (kind in ('reprice', 'remap')),
    -- What history is brought to; another one starts from the beginning.
    version         text not null,
    after_trace_id  bytea not null,
    spans           bigint not null,
    traces          bigint not null,
    changed_spans   bigint not null,
    changed_traces  bigint not null,
    without_payload bigint not null,
    cost_before     numeric not null,
    cost_after      numeric not null,
    tokens_before   numeric not null,
    tokens_after    numeric not null,
    unpriced_before bigint not null,
    unpriced_after  bigint not null,
    started_at      timestamptz not null,
    finished_at     timestamptz,
    primary key (project_id, kind)
);

-- What one exporter sent on a day, as far as looked at: counters that add up, in `seen`.
create table exporter_day (
    project_id   bigint not null,
    day          date not null,
    -- A hash of the five names below.
    exporter     bytea not null,
    service       text not null,
    sdk           text not null,
    sdk_version   text not null,
    scope         text not null,
    scope_version text not null,
    last_seen_at timestamptz not null,
    seen         jsonb not null,
    primary key (project_id, day, exporter)
);

-- Spans refused at the doors on a day, by reason.
create table rejection_day (
    project_id   bigint not null,
    day          date not null,
    reason       text not null,
    spans        bigint not null,
    last_seen_at timestamptz not null,
    primary key (project_id, day, reason)
);
