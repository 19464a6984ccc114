-- expand
-- What is written to the cache for an hour is a part of the cache writes with a price of its own.
alter table span add column cache_write_1h_tokens bigint;
alter table project_price add column cache_write_1h numeric;
