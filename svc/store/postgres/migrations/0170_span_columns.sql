-- expand
-- Spans by column: what measures, filters and groups of any field are added up from, without a look at the rows.
-- Written beside the cubes when an hour is closed, and day by day once a day is over; never changed, only replaced.

create table span_column (
    project_id bigint not null,
    -- The day on which the spans were stored; its hour, or -1 for the whole of it.
    day        timestamptz not null,
    hour       smallint not null,
    -- The day on which they began.
    began      timestamptz not null,
    part       integer not null,
    field      text not null,
    spans      integer not null,
    -- The dictionary of a field of texts, and a code or number for each span, both compressed.
    texts      bytea,
    codes      bytea not null,
    primary key (project_id, field, day, hour, began, part)
);
alter table span_column alter texts set storage external, alter codes set storage external;

-- Which hours of a day have columns, a bit each; whether they stand together as a day.
create table span_column_day (
    project_id bigint not null,
    day        timestamptz not null,
    hours      integer not null,
    whole      boolean not null,
    spans      bigint not null,
    changed_at timestamptz not null,
    primary key (project_id, day)
);
