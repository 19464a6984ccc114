-- backfill
-- Which traces the roller has yet to look at, and when. The row of a trace that never changes is not written again when
-- it settles, with its previews and all of its indexes. Rows of this table come and go all the time.
create table trace_due (
    project_id bigint not null,
    trace_id   bytea not null,
    next_at    timestamptz not null,
    -- As the trace says: large ones have a round of their own.
    large      boolean not null,
    primary key (project_id, trace_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index trace_due_next on trace_due (large, next_at);

-- When a trace changes, its own next_at says when it is looked at next, which the release before goes by as well.
create function note_due_trace() returns trigger language plpgsql as $$
begin
    insert into trace_due (project_id, trace_id, next_at, large)
    values (new.project_id, new.trace_id, new.next_at, new.large)
    on conflict (project_id, trace_id) do update set next_at = excluded.next_at, large = excluded.large;
    return null;
end
$$;

-- Only the release before inserts a trace with a next_at.
create trigger trace_came_due after insert on trace for each row when (new.next_at is not null)
    execute function note_due_trace();
create trigger trace_fell_due after update of next_at, large on trace for each row
    when (new.next_at is not null and (new.next_at, new.large) is distinct from (old.next_at, old.large))
    execute function note_due_trace();

-- What is under way; the triggers keep writers out until the end of this transaction.
insert into trace_due (project_id, trace_id, next_at, large)
select project_id, trace_id, next_at, large from trace where next_at is not null;
