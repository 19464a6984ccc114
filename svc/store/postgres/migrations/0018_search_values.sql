-- contract
-- Where the rows with a value lie, hour by hour, for pages that are narrowed to a value without an index of its
-- own; and blocks of texts for tool calls as well as for spans.
--
-- Built with the hourly cubes, and current exactly where they are. Of a few rows the moments of `created_at` and
-- of `started_at` are kept, side by side, so that they are looked up one by one however they are spread.

create table search_value (
    project_id      bigint not null,
    dataset         text not null,
    field           text not null,
    value           text not null,
    hour            timestamptz not null,
    n               bigint not null,
    last_started_at timestamptz not null,
    created_at      timestamptz[],
    started_at      timestamptz[],
    primary key (project_id, dataset, field, value, hour)
);
create index search_value_hour on search_value (project_id, dataset, hour);

-- It takes the place of the hours of values in the cube.
drop index cube_value;

truncate search_block;
alter table search_block add column dataset text not null;
-- Whether the ids of the block are among its pieces; where they would be too many they are not.
alter table search_block add column ids boolean not null;
drop index search_block_hour;
drop index search_block_blind;
create index search_block_hour on search_block (project_id, dataset, hour);
create index search_block_blind on search_block (project_id, dataset, hour) where grams is null or not ids;

-- Failed tool calls are few and asked for often, as failed spans are.
create index tool_call_failed on tool_call (project_id, created_at) where status = 'error';

-- Pages of traces are looked through for a part of an id in the index alone.
drop index trace_started;
create index trace_started on trace (project_id, started_at desc, trace_id desc);

-- Hours that were built without these are built anew.
delete from cube_progress;
delete from cube;
delete from cube_day;
delete from cube_dirty;
