-- backfill
-- Models by the name that was sent, hour by hour: a trace is asked for by that name as well as by the model's id.
-- No facet, so there are no sums by day.

-- No hour is built meanwhile; the statement below sees all that were.
lock table cube in share row exclusive mode;

insert into cube (project_id, dataset, field, hour, value, n)
select s.project_id, 'spans', 'provided_model_name', date_trunc('hour', s.created_at, 'UTC'), s.provided_model_name,
       count(*)
from cube_progress p join span s on s.project_id = p.project_id and s.created_at < p.built_until
where p.dataset = 'spans' group by 1, 4, 5;

drop index cube_value;
create index cube_value on cube (project_id, dataset, field, value, hour) include (n)
    where field in ('kind', 'name', 'model_id', 'provided_model_name');
