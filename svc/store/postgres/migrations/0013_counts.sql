-- backfill
-- How many traces and sessions a project holds, without counting them: the sum of what each statement added and
-- took away. Rows are only added, so that writers never wait for one another; svc/store/aggregates/counts.py folds them.

create table project_count (
    project_id bigint not null,
    -- The counted table.
    counted    text not null,
    n          bigint not null
);
create index project_count_counted on project_count (project_id, counted) include (n);

create function note_count() returns trigger language plpgsql as $$
begin
    insert into project_count (project_id, counted, n)
    select project_id, tg_table_name, case tg_op when 'INSERT' then count(*) else -count(*) end
    from changed group by project_id;
    return null;
end
$$;

create trigger trace_came after insert on trace referencing new table as changed
    for each statement execute function note_count();
create trigger trace_went after delete on trace referencing old table as changed
    for each statement execute function note_count();
create trigger session_came after insert on session referencing new table as changed
    for each statement execute function note_count();
create trigger session_went after delete on session referencing old table as changed
    for each statement execute function note_count();

-- What is there already; the triggers keep writers out until the end of this transaction.
insert into project_count (project_id, counted, n) select project_id, 'trace', count(*) from trace group by 1;
insert into project_count (project_id, counted, n) select project_id, 'session', count(*) from session group by 1;
