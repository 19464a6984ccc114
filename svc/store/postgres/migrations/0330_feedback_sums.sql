-- backfill
-- What each name of feedback says by hour and by day, without reading entries. Triggers note what each statement
-- added and took away, whoever it is: writers, retention, erasure. Those rows are only added, so that writers never
-- wait for one another; svc/store/aggregates/feedback_sums.py folds them. Numerics, for what is taken away must leave nothing.

-- The first categories that a name had, in that order: these are told apart, all others are summed as one.
alter table feedback_name add column categories text[] not null default '{}';
update feedback_name n set categories = c.categories from (
    select project_id, name, (array_agg(category order by first_at, category))[:50] as categories from (
        select project_id, name, category, min(created_at) as first_at from feedback
        where category is not null group by 1, 2, 3
    ) each group by 1, 2
) c where n.project_id = c.project_id and n.name = c.name;

create table feedback_sum (
    project_id bigint not null,
    grain      text not null check (grain in ('hour', 'day')),
    started_at timestamptz not null,
    name       text not null,
    -- Empty of entries without one, a blank of those that are not told apart.
    category   text not null,
    entries    bigint not null,
    numbers    bigint not null,
    total      numeric not null,
    squares    numeric not null,
    primary key (project_id, grain, started_at, name, category)
);
create index feedback_sum_empty on feedback_sum (project_id) where entries = 0;
create table feedback_change (
    project_id bigint not null,
    grain      text not null,
    started_at timestamptz not null,
    name       text not null,
    category   text not null,
    entries    bigint not null,
    numbers    bigint not null,
    total      numeric not null,
    squares    numeric not null
);
create index feedback_change_project on feedback_change (project_id);

create function note_feedback() returns trigger language plpgsql as $$
declare
    sign integer := tg_argv[0];
begin
    insert into feedback_change (project_id, grain, started_at, name, category, entries, numbers, total, squares)
    select c.project_id, g.grain, date_trunc(g.grain, c.judged_at, 'UTC'), c.name,
        case when c.category is null then '' when c.category = any(n.categories) then c.category else ' ' end,
        sign * count(*), sign * count(c.number), sign * coalesce(sum(c.number::numeric), 0),
        sign * coalesce(sum(c.number::numeric ^ 2), 0)
    from changed c left join feedback_name n on n.project_id = c.project_id and n.name = c.name
    cross join (values ('hour'), ('day')) as g (grain) group by 1, 2, 3, 4, 5;
    return null;
end
$$;
create trigger feedback_came after insert on feedback referencing new table as changed
    for each statement execute function note_feedback('1');
create trigger feedback_changed_from after update on feedback referencing old table as changed
    for each statement execute function note_feedback('-1');
create trigger feedback_changed_to after update on feedback referencing new table as changed
    for each statement execute function note_feedback('1');
create trigger feedback_went after delete on feedback referencing old table as changed
    for each statement execute function note_feedback('-1');

-- What is there already; the triggers keep writers out until the end of this transaction.
insert into feedback_sum (project_id, grain, started_at, name, category, entries, numbers, total, squares)
select f.project_id, g.grain, date_trunc(g.grain, f.judged_at, 'UTC'), f.name,
    case when f.category is null then '' when f.category = any(n.categories) then f.category else ' ' end,
    count(*), count(f.number), coalesce(sum(f.number::numeric), 0), coalesce(sum(f.number::numeric ^ 2), 0)
from feedback f left join feedback_name n on n.project_id = f.project_id and n.name = f.name
cross join (values ('hour'), ('day')) as g (grain) group by 1, 2, 3, 4, 5;
