-- expand
-- What a span was to the byte when it came, so that one sent again unchanged costs a look and no write.
-- Null on rows of before: those are replaced once more.

alter table span add column digest bigint;
