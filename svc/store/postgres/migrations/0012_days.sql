-- backfill
-- The hours of a cube summed up by day, so that a month is answered from thirty rows a value, not from 720.
--
-- A day stands for its hours as they are in `cube`; it is made anew with each of them, in the same transaction.
-- Values that live for less than a day (sessions) are not summed up: it would save nothing.

create table cube_day (
    project_id bigint not null,
    dataset    text not null,
    field      text not null,
    day        timestamptz not null,
    value      text,
    n          bigint not null
);
create index cube_day_field on cube_day (project_id, dataset, field, day) include (value, n);

insert into cube_day (project_id, dataset, field, day, value, n)
select project_id, dataset, field, date_trunc('day', hour, 'UTC'), value, sum(n)
from cube where field <> 'session_id' group by 1, 2, 3, 4, 5;
