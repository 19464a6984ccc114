-- expand
-- Terms of projects that differ from the install's, and the traces that a sweep must leave alone.

create table retention_override (
    project_id         bigint primary key,
    -- Null: the install's default applies. 0: for ever.
    trace_ttl_days     integer check (trace_ttl_days >= 0),
    detection_ttl_days integer check (detection_ttl_days >= 0)
);

-- Traces past their term that an open finding or an unresolved case cites; brought up to date by each sweep.
create table kept_trace (
    project_id bigint not null,
    trace_id   bytea not null,
    primary key (project_id, trace_id)
);
