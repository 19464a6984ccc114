-- expand
-- The hour under way by column as well, five minutes at a time: `span_column` has each such slice of a day under 100
-- and its number, counted from midnight. Once its hour is closed, a slice is not read any more, and soon is gone.
create table span_slice (
    project_id bigint not null,
    slice      timestamptz not null,
    spans      integer not null,
    -- When the last of them began.
    latest     timestamptz not null,
    primary key (project_id, slice)
);

-- Slices whose spans changed; rows are only added, so that nobody who changes spans waits for another.
create table span_slice_mark (
    project_id bigint not null,
    slice      timestamptz not null,
    marked_at  timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index span_slice_mark_slice on span_slice_mark (project_id, slice);

-- When the last span that a day's columns hold began, as of a change of the day: the release before does not say it.
alter table span_column_day add column latest timestamptz, add column latest_at timestamptz;
