-- expand
-- What a project has masked before anything is stored: classes by their name, and patterns of its own.
create table masking_rule (
    project_id bigint not null,
    name       text not null,
    pattern    text,
    primary key (project_id, name)
);
-- How often, by day.
create table masking_count (
    project_id bigint not null,
    name       text not null,
    day        date not null,
    n          bigint not null,
    primary key (project_id, name, day)
);
