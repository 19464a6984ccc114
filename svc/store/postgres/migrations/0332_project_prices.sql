-- expand
-- What a project says that models cost, in dollars a million tokens; a blank provider is any.
create table project_price (
    project_id  bigint not null,
    model       text not null,
    provider    text not null,
    input       numeric not null,
    output      numeric not null,
    cache_read  numeric,
    cache_write numeric,
    primary key (project_id, model, provider)
);
