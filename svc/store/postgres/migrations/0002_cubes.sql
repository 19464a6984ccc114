-- expand
-- Hourly cubes: how many rows of a dataset were created in an hour, by each value of each facet field.
--
-- All hours before cube_progress.built_until are in the cube, except those in cube_dirty, which are counted
-- from the raw rows until they are built again. So an answer is exact at every moment.

create table cube (
    project_id bigint not null,
    dataset    text not null,
    -- '' is the total, with a null value.
    field      text not null,
    hour       timestamptz not null,
    value      text,
    n          bigint not null
);
create index cube_field on cube (project_id, dataset, field, hour) include (value, n);

create table cube_progress (
    project_id  bigint not null,
    dataset     text not null,
    built_until timestamptz not null,
    primary key (project_id, dataset)
);

create table cube_dirty (
    project_id bigint not null,
    dataset    text not null,
    hour       timestamptz not null,
    marked_at  timestamptz not null,
    primary key (project_id, dataset, hour)
);
