-- expand
-- What people write about an entry of a set, as part of that set.
alter table trace_set_entry add column note text;
