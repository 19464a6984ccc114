-- expand
-- What somebody asked to be erased: a trace, a session, all data of a user. `subject` is whom it is about, until it
-- is done; what stays is a keyed digest, by which one can check an id. One erasure of a project runs at a time, the
-- oldest first, in portions: `phase` and `place` say how far it is.
create table erasure (
    project_id  bigint not null,
    id          uuid not null default gen_random_uuid(),
    kind        text not null check (kind in ('trace', 'session', 'user')),
    subject     text,
    digest      bytea not null,
    asked_by    text not null,
    asked_at    timestamptz not null,
    phase       text not null default 'finding',
    place       text[] not null default '{}',
    days        timestamptz[] not null default '{}',
    counts      jsonb not null default '{}',
    noted_at    timestamptz,
    finished_at timestamptz,
    primary key (project_id, id),
    check ((subject is null) = (finished_at is not null))
);
create index erasure_unfinished on erasure (project_id, asked_at) where finished_at is null;
create index erasure_asked on erasure (project_id, asked_at desc, id desc);

-- What may not be stored (again): spans of these traces, and what these sessions and users did before a moment.
-- For a term: by then whatever was on its way has come.
create table erased_trace (
    project_id bigint not null,
    trace_id   bytea not null,
    erasure_id uuid not null,
    gone       boolean not null default false,
    until      timestamptz not null,
    primary key (project_id, trace_id)
);
create index erased_trace_due on erased_trace (project_id, erasure_id, trace_id) where not gone;
create index erased_trace_until on erased_trace (until);
create table erased_subject (
    project_id bigint not null,
    digest     bytea not null,
    before     timestamptz not null,
    until      timestamptz not null,
    primary key (project_id, digest)
);
create index erased_subject_until on erased_subject (until);

-- While an erasure runs: sessions that lost traces, messages and values of attributes that perhaps nobody else has.
-- Whoever writes one of them takes it out.
create table erasing_session (
    project_id bigint not null,
    session_id text not null,
    primary key (project_id, session_id)
);
create table erasing_message (
    project_id bigint not null,
    started_at timestamptz not null,
    hash       bytea not null,
    primary key (project_id, started_at, hash)
);
create table erasing_value (
    project_id bigint not null,
    code       text collate "C" not null,
    primary key (project_id, code)
);
