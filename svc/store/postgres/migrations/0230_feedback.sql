-- expand
-- What people and programs think of an answer, about a trace, a span of it, or a session. An entry has its id
-- from whoever sent it, unique among those of the same source; it may come before its trace.
create table feedback (
    project_id bigint not null,
    source     text not null,
    id         text not null,
    name       text not null,
    trace_id   bytea,
    span_id    bytea,
    session_id text,
    number     double precision,
    category   text,
    text       text,
    author     text,
    -- Its row of `classifier_event`.
    firing_id  uuid not null,
    judged_at  timestamptz not null,
    created_at timestamptz not null default now(),
    primary key (project_id, source, id),
    check (trace_id is not null or session_id is not null)
);
create index feedback_trace on feedback (project_id, trace_id) where trace_id is not null;
create index feedback_session on feedback (project_id, session_id) where session_id is not null;
create index feedback_of_name on feedback (project_id, name, judged_at);
create index feedback_created on feedback (project_id, created_at, source, id);

-- The names of a project's feedback, with the range of their numbers; `better` is what somebody set.
create table feedback_name (
    project_id bigint not null,
    name       text not null,
    low        double precision,
    high       double precision,
    better     text check (better in ('higher', 'lower')),
    first_at   timestamptz not null,
    last_at    timestamptz not null,
    primary key (project_id, name)
);
