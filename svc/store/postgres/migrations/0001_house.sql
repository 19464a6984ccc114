-- expand
-- Organizations, projects, keys, and the tables that traffic fills.
--
-- Every key starts with project_id, so that the schema can be sharded by it. Tables that grow with traffic
-- are partitioned by day of started_at: retention drops a day and its disk is free at once. Rows whose time
-- lies outside the kept window go to the default partition.

create table organization (
    id         bigint generated always as identity primary key,
    slug       text not null unique,
    name       text not null,
    created_at timestamptz not null default now()
);

create table project (
    id         bigint generated always as identity primary key,
    org_id     bigint not null references organization (id),
    slug       text not null,
    name       text not null,
    created_at timestamptz not null default now(),
    deleted_at timestamptz,
    unique (org_id, slug)
);

create table api_key (
    project_id   bigint not null references project (id),
    id           uuid not null default gen_random_uuid(),
    name         text not null check (name <> ''),
    scope        text not null check (scope in ('write', 'query', 'admin')),
    token_prefix text not null check (length(token_prefix) = 14),
    secret_hash  bytea not null,
    created_at   timestamptz not null default now(),
    last_used_at timestamptz,
    revoked_at   timestamptz,
    primary key (project_id, id)
);
-- Verification starts from the prefix of a token, before its project is known.
create index api_key_prefix on api_key (token_prefix) where revoked_at is null;

create table span (
    project_id          bigint not null,
    trace_id            bytea not null,
    span_id             bytea not null,
    parent_span_id      bytea,
    kind                text not null,
    name                text not null,
    status              text not null,
    error_type          text,
    error_message       text,
    started_at          timestamptz not null,
    ended_at            timestamptz,
    created_at          timestamptz not null,
    call_site_id        text not null,
    tagged              boolean not null,
    session_id          text,
    user_id             text,
    provided_model_name text,
    model_id            text,
    provider            text,
    response_id         text,
    input_tokens        bigint,
    output_tokens       bigint,
    cache_read_tokens   bigint,
    cache_write_tokens  bigint,
    reasoning_tokens    bigint,
    input_cost          numeric,
    output_cost         numeric,
    cache_read_cost     numeric,
    cache_write_cost    numeric,
    total_cost          numeric,
    cost_source         text,
    usage_repeats       text,
    input_preview       text,
    output_preview      text,
    primary key (project_id, trace_id, span_id, started_at)
) partition by range (started_at);
create index span_created on span (project_id, created_at);
create index span_session on span (project_id, session_id, created_at) where session_id is not null;
create index span_call_site on span (project_id, call_site_id, created_at);
create table span_default partition of span default;

-- The whole span as it came: one zstd frame holding an OTLP request with its resource and scope.
create table span_payload (
    project_id bigint not null,
    trace_id   bytea not null,
    span_id    bytea not null,
    started_at timestamptz not null,
    body       bytea not null,
    primary key (project_id, trace_id, span_id, started_at)
) partition by range (started_at);
-- The frame is compressed already; the server must not try again (measured: pglz is the brake).
alter table span_payload alter column body set storage external;
create table span_payload_default partition of span_payload default;

create table tool_call (
    project_id    bigint not null,
    trace_id      bytea not null,
    span_id       bytea not null,
    index         integer not null,
    embedded      boolean not null,
    name          text not null,
    call_id       text,
    status        text not null,
    error_type    text,
    error_message text,
    call_site_id  text not null,
    started_at    timestamptz not null,
    created_at    timestamptz not null,
    primary key (project_id, trace_id, span_id, index, started_at)
) partition by range (started_at);
create index tool_call_created on tool_call (project_id, created_at);
create table tool_call_default partition of tool_call default;

-- One row a trace. It is settled when next_at is null; until then the roller looks at it at next_at.
create table trace (
    project_id         bigint not null,
    trace_id           bytea not null,
    name               text not null,
    started_at         timestamptz not null,
    ended_at           timestamptz,
    -- Bounds of started_at over all its spans: they name the partitions to look into.
    first_started_at   timestamptz not null,
    last_started_at    timestamptz not null,
    root_seen          boolean not null,
    session_id         text,
    user_id            text,
    call_site_id       text not null,
    span_count         integer not null,
    error_count        integer not null,
    status             text not null,
    input_tokens       bigint,
    output_tokens      bigint,
    cache_read_tokens  bigint,
    cache_write_tokens bigint,
    reasoning_tokens   bigint,
    total_tokens       bigint,
    input_cost         numeric,
    output_cost        numeric,
    total_cost         numeric,
    unpriced_spans     integer not null,
    input_preview      text,
    output_preview     text,
    created_at         timestamptz not null,
    -- Changed since the last roll-up.
    stale              boolean not null,
    -- When the trace counts as quiet, and when the roller looks next.
    due_at             timestamptz not null,
    next_at            timestamptz,
    primary key (project_id, trace_id)
) with (fillfactor = 80);
create index trace_started on trace (project_id, started_at desc);
create index trace_session on trace (project_id, session_id, started_at) where session_id is not null;
create index trace_next on trace (next_at) where next_at is not null;

create table session (
    project_id       bigint not null,
    id               text not null,
    user_id          text,
    started_at       timestamptz not null,
    last_activity_at timestamptz not null,
    primary key (project_id, id)
);
create index session_activity on session (project_id, last_activity_at desc);

create table call_site (
    project_id    bigint not null,
    id            text not null,
    tagged        boolean not null,
    model         text,
    provider      text,
    first_seen_at timestamptz not null,
    primary key (project_id, id)
);

-- What could not be stored, one row a span where it could be taken apart; body is the OTLP request.
create table dead_letter (
    id          bigint generated always as identity primary key,
    project_id  bigint not null,
    reason      text not null,
    spans       integer not null,
    received_at timestamptz not null,
    buried_at   timestamptz not null default now(),
    body        bytea not null
);

-- The two datasets that later detectors and sweeps fill.
create table classifier_event (
    project_id         bigint not null,
    id                 uuid not null default gen_random_uuid(),
    classifier_id      text not null,
    severity           text not null,
    confidence         text,
    subject_kind       text not null,
    subject_session_id text,
    subject_trace_id   bytea,
    subject_span_id    bytea,
    call_site_id       text,
    summary            text not null,
    created_at         timestamptz not null default now(),
    primary key (project_id, id)
);
create index classifier_event_created on classifier_event (project_id, created_at);

create table metric_rollup (
    project_id   bigint not null,
    metric       text not null,
    granularity  text not null check (granularity in ('hour', 'day')),
    bucket_start timestamptz not null,
    value        numeric not null,
    primary key (project_id, metric, granularity, bucket_start)
);
create index metric_rollup_bucket on metric_rollup (project_id, bucket_start);
