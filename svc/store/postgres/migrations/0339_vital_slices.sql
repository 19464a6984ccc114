-- expand
-- What vital_cube and model_cube know of closed hours, of the closed slices of the hour under way. Slices that the
-- release before writes, or writes anew, are without it: it updates their rows, and this release never does.
alter table span_slice add column with_vitals boolean not null default false;
create function lose_vitals() returns trigger language plpgsql as $$
begin
    new.with_vitals := false;
    return new;
end
$$;
create trigger span_slice_written_anew before update on span_slice for each row execute function lose_vitals();

create table vital_slice (
    project_id bigint not null,
    what       text not null,
    slice      timestamptz not null,
    began      timestamptz not null,
    subject    text not null,
    n          bigint not null,
    failed     bigint not null,
    cost       numeric,
    priced     bigint not null,
    bins       smallint[] not null,
    counts     bigint[] not null,
    foreign key (project_id, slice) references span_slice (project_id, slice) on delete cascade
);
create index vital_slice_slice on vital_slice (project_id, slice);

create table model_slice (
    project_id bigint not null,
    slice      timestamptz not null,
    began      timestamptz not null,
    provider   text,
    name       text not null,
    model_id   text,
    calls      bigint not null,
    unpriced   bigint not null,
    given      bigint not null,
    tokens     bigint not null,
    cost       numeric,
    foreign key (project_id, slice) references span_slice (project_id, slice) on delete cascade
);
create index model_slice_slice on model_slice (project_id, slice);
