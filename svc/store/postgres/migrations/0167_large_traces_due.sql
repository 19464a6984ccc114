-- expand
-- concurrently
-- Large traces that are due, for the roller of their own.
create index trace_large_next on trace (next_at) where next_at is not null and large;
