-- expand
-- Slices of the hour under way whose traces stand in groups: in trace_group and what belongs to it, each bears as its
-- hour its beginning and four thousand years, which no hour that is built comes up to.
create table trace_slice (
    project_id bigint not null,
    slice      timestamptz not null,
    primary key (project_id, slice)
);

-- Slices whose traces changed; rows are only added, as in span_slice_mark.
create table trace_slice_mark (
    project_id bigint not null,
    slice      timestamptz not null,
    marked_at  timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index trace_slice_mark_slice on trace_slice_mark (project_id, slice, marked_at);
create index span_slice_mark_at on span_slice_mark (project_id, slice, marked_at);

-- Rows of slices come and go all the time.
alter table trace_group set (autovacuum_vacuum_scale_factor = 0.02);
alter table trace_cube set (autovacuum_vacuum_scale_factor = 0.02);
alter table trace_code set (autovacuum_vacuum_scale_factor = 0.02);
alter table trace_code_page set (autovacuum_vacuum_scale_factor = 0.02);
