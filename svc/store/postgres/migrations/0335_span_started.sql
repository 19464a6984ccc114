-- expand
-- concurrently
-- When spans began: the hours that a range cuts are read without the rest of their day.
create index span_started on span using brin (started_at) with (pages_per_range = 32);
