-- expand
-- What each trace of a group took, cost and belongs to, as numbers of a dictionary and cut into bits, so that a filter
-- of them is a few operations on bits for a whole group instead of a look at each of its traces.

create table trace_code (
    project_id bigint not null,
    field      text not null,
    -- Of the group of traces.
    began      timestamptz not null,
    hour       timestamptz not null,
    part       integer not null,
    -- The values in order are numbered from one; so many there are.
    most       integer not null,
    -- Which traces have a value, and of their numbers each bit, the lowest first, a bit for each trace.
    known      bit varying not null,
    planes     bit varying[] not null,
    -- The first value and every so many behind it: all of them when they are few. One of both, by the field.
    stride     integer not null,
    numbers    numeric[] not null,
    texts      text[] not null,
    primary key (project_id, field, began, hour, part)
);
create index trace_code_hour on trace_code (project_id, hour);

-- Of a dictionary of many its values, `stride` to a row; place 0 has the first ones.
create table trace_code_page (
    project_id bigint not null,
    field      text not null,
    began      timestamptz not null,
    hour       timestamptz not null,
    part       integer not null,
    place      integer not null,
    numbers    numeric[] not null,
    texts      text[] not null,
    primary key (project_id, field, began, hour, part, place)
);
create index trace_code_page_hour on trace_code_page (project_id, hour);

-- What fits into a page of the table is read without a second look.
alter table trace_code set (toast_tuple_target = 8160);
alter table trace_code_page set (toast_tuple_target = 8160);

-- Whether the group has codes: those of a release before get theirs by the builder.
alter table trace_group add column coded boolean not null default false;
create index trace_group_lacking on trace_group (project_id, hour) where not coded;
