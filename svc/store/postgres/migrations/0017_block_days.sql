-- expand
-- When the spans of a block started, so that only the days that hold them are looked into. Null for blocks that were
-- built before: any day.

alter table search_block add column first_started_at timestamptz;
alter table search_block add column last_started_at timestamptz;
