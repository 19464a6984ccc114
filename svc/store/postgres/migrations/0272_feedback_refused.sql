-- expand
-- Entries of feedback whose names a project had no room for.
create table feedback_refused (
    project_id bigint primary key,
    entries    bigint not null,
    last_at    timestamptz not null
);
