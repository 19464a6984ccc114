-- expand
-- Traces and spans that people keep together under a name; retention keeps what a set holds. An entry without a
-- span is about the whole trace.
create table trace_set (
    project_id  bigint not null,
    id          uuid not null default gen_random_uuid(),
    name        text not null,
    made_by     text not null,
    made_at     timestamptz not null default now(),
    primary key (project_id, id),
    unique (project_id, name)
);
create table trace_set_entry (
    project_id bigint not null,
    set_id     uuid not null,
    trace_id   bytea not null,
    span_id    bytea not null default '',
    added_by   text not null,
    added_at   timestamptz not null default clock_timestamp(),
    primary key (project_id, set_id, trace_id, span_id)
);
create index trace_set_entry_trace on trace_set_entry (project_id, trace_id);
