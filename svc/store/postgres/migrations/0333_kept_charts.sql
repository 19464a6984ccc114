-- expand
-- Charts of Explore that a project keeps on its Overview, in an order of its own.

create table kept_chart (
    project_id bigint not null,
    id         uuid not null default gen_random_uuid(),
    title      text not null,
    -- As it stands behind the question mark of Explore's address.
    question   text not null,
    position   integer not null,
    kept_by    text not null,
    kept_at    timestamptz not null default now(),
    primary key (project_id, id)
);
