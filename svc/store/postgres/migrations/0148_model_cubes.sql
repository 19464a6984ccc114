-- expand
-- Calls by the model that was named, and traces by what their spans hold, by the hour: counted once when the hour is
-- closed, and again when something of it changes (cube_dirty: 'spans' for models, 'traces' for traces).

create table model_cube (
    project_id bigint not null,
    -- The hour in which the rows were stored, which is built as a whole, and the one in which they began.
    hour       timestamptz not null,
    began      timestamptz not null,
    provider   text,
    name       text not null,
    model_id   text,
    calls      bigint not null,
    -- With usage and without a cost; with the exporter's cost.
    unpriced   bigint not null,
    given      bigint not null,
    tokens     bigint not null,
    cost       numeric
);
create index model_cube_began on model_cube (project_id, began);
create index model_cube_hour on model_cube (project_id, hour);

create table trace_cube (
    project_id bigint not null,
    hour       timestamptz not null,
    began      timestamptz not null,
    -- '' counts all traces; else one of model, kind and call_site_id, whose value some span of the trace has.
    field      text not null,
    value      text not null,
    n          bigint not null,
    failed     bigint not null
);
create index trace_cube_value on trace_cube (project_id, field, value, began);
create index trace_cube_hour on trace_cube (project_id, hour);

-- Every hour is counted anew: a trace is stored in an hour in which a span was.
insert into cube_dirty (project_id, dataset, hour, marked_at)
select project_id, name, hour, now() from cube cross join (values ('spans'), ('traces')) as of (name)
where dataset = 'spans' and field = ''
on conflict do nothing;
