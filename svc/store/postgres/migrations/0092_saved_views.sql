-- expand
-- Names for questions: what a list of traces was narrowed to, for everybody in the project.

create table saved_view (
    project_id bigint not null,
    name       text not null,
    -- As it stands behind the question mark of the page's address.
    query      text not null,
    saved_by   text not null,
    saved_at   timestamptz not null default now(),
    primary key (project_id, name)
);
