-- backfill
-- No span of a day's columns began after the last day that they have segments of. Nor, as a rule, after the last hour
-- that is closed: what arrived in it began before it ended, unless a clock ran ahead. One look at what began since tells
-- of all projects.
with seen as materialized (select project_id, day, changed_at from span_column_day),
closed as (
    select project_id, built_until as hour from cube_progress where dataset = 'spans'
    and built_until >= (select max(built_until) - interval '2 hours' from cube_progress where dataset = 'spans')),
ahead as (
    select distinct s.project_id from span s join closed c on c.project_id = s.project_id
    where s.started_at >= (select min(hour) from closed) and s.started_at >= c.hour and s.created_at < c.hour),
bounds as (
    select seen.*, coalesce((
        select max(began) + interval '1 day' from span_column c
        where c.project_id = seen.project_id and c.field = 'kind' and c.day = seen.day and c.hour >= -1), 'epoch')
        as bound,
        (select hour from closed c where c.project_id = seen.project_id
        and not exists (select from ahead a where a.project_id = c.project_id)) as hour
    from seen)
update span_column_day d set latest = least(b.bound, b.hour), latest_at = b.changed_at
from bounds b where b.project_id = d.project_id and b.day = d.day;
