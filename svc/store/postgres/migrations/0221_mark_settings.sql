-- expand
-- What people set of a single mark: whether it is stated at all, and whether its rate is reported. Without a row both.
create table mark_setting (
    project_id bigint not null,
    mark       text not null,
    enabled    boolean not null default true,
    muted      boolean not null default false,
    primary key (project_id, mark)
);
