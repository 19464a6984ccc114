-- expand
-- Traces with a value that are kept for fewer days than their project's others. Days before `swept_until` have been
-- looked through at `swept_at`: a sweep looks at what has expired since, and at what arrived since.
create table retention_rule (
    project_id  bigint not null,
    field       text not null,
    value       text not null,
    days        integer not null check (days > 0),
    swept_until timestamptz,
    swept_at    timestamptz,
    primary key (project_id, field, value)
);
