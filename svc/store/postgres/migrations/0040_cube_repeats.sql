-- backfill
-- Which spans repeat another's usage, hour by hour and day by day: how many calls of models there were is a facet.

-- No hour is built meanwhile; the statements below see all that were.
lock table cube in share row exclusive mode;

insert into cube (project_id, dataset, field, hour, value, n)
select s.project_id, 'spans', 'usage_repeats', date_trunc('hour', s.created_at, 'UTC'), s.usage_repeats, count(*)
from cube_progress p join span s on s.project_id = p.project_id and s.created_at < p.built_until
where p.dataset = 'spans' group by 1, 4, 5;

insert into cube_day (project_id, dataset, field, day, value, n)
select project_id, dataset, field, date_trunc('day', hour, 'UTC'), value, sum(n)
from cube where dataset = 'spans' and field = 'usage_repeats' group by 1, 2, 3, 4, 5;
