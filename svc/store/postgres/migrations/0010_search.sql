-- expand
-- Which stretches of a project's spans may hold a text: the three-letter pieces of the words in them.
--
-- Built with the hourly cubes, hour by hour, and current exactly where they are. A block covers
-- [low, high) of created_at within its hour. `grams` are hashes of project and piece; null means that the
-- texts of the block have too many to tell anything, so that it is always looked into.

create table search_block (
    project_id bigint not null,
    hour       timestamptz not null,
    low        timestamptz not null,
    high       timestamptz not null,
    grams      integer[]
);
create index search_block_hour on search_block (project_id, hour);
create index search_block_grams on search_block using gin (grams);
create index search_block_blind on search_block (project_id, hour) where grams is null;

-- Hours that were built without blocks are built anew.
delete from cube_progress where dataset = 'spans';
delete from cube where dataset = 'spans';
delete from cube_dirty where dataset = 'spans';
