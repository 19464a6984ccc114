-- expand
-- How call sites, models and tools were doing, by the hour: counted once when the hour is closed, and again when
-- something of it changes (cube_dirty: 'traces' for call sites, 'spans' for models and tools).

create table vital_cube (
    project_id bigint not null,
    what       text not null,
    -- The hour in which the rows were stored, which is built as a whole, and the one in which they began.
    hour       timestamptz not null,
    began      timestamptz not null,
    subject    text not null,
    n          bigint not null,
    failed     bigint not null,
    cost       numeric,
    priced     bigint not null,
    -- Durations, on the axis of svc/domain/detect/histogram.py.
    bins       smallint[] not null,
    counts     bigint[] not null
);
create index vital_cube_began on vital_cube (project_id, what, began);
create index vital_cube_hour on vital_cube (project_id, what, hour);

-- What two windows of a week reach back to is counted anew.
insert into cube_dirty (project_id, dataset, hour, marked_at)
select project_id, 'spans', hour, now() from cube
where dataset = 'spans' and field = '' and hour > now() - interval '15 days'
on conflict do nothing;
