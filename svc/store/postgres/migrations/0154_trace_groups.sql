-- expand
-- Traces of an hour side by side, column by column, so that what a filter leaves of a month is counted from a few
-- hundred rows: counted once when the hour is closed, and again when something of it changes (cube_dirty: 'traces').

create table trace_group (
    project_id bigint not null,
    -- The hour in which the traces were stored, which is built as a whole, and the one in which they began; `part`
    -- numbers the groups of those that are many.
    hour       timestamptz not null,
    began      timestamptz not null,
    part       integer not null,
    -- A bit and a value for each trace, in the order in which they began.
    failed     bit varying not null,
    failing    bit varying not null,
    unpriced   bit varying not null,
    started    timestamptz[] not null,
    ids        bytea[] not null,
    -- Microseconds; null has not ended.
    took       bigint[] not null,
    cost       numeric[] not null,
    users      text[] not null,
    sessions   text[] not null,
    primary key (project_id, began, hour, part)
);
create index trace_group_hour on trace_group (project_id, hour);

-- Which traces of the group hold the value, by the same order. Null in hours of an earlier release, which are counted
-- row by row until they are built anew.
alter table trace_cube add column part integer not null default 0;
alter table trace_cube add column held bit varying;
create index trace_cube_lacking on trace_cube (project_id, hour) where field = '' and held is null;
