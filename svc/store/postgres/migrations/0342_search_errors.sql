-- expand
-- Whether a block of search over spans knows what their failures said. Those that an earlier release made do
-- not: they are made anew, newest first.
alter table search_block add column with_errors boolean not null default false;
create index search_block_lacking on search_block (hour, project_id) where dataset = 'spans' and not with_errors;
