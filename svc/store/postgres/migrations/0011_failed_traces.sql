-- expand
-- Failed traces are few and asked for often: a page of them must not walk all the others.

create index trace_failed on trace (project_id, started_at desc, trace_id desc) where status = 'error';
