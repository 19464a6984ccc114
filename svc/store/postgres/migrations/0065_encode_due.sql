-- expand
-- Traces that an encoder is to be asked about, by detector, in the order in which they were counted. Only where
-- an encoder is configured. Rows come and go all the time.
create table encode_due (
    project_id bigint not null,
    detector   text not null,
    place      bigint generated always as identity,
    trace_id   bytea not null,
    primary key (project_id, detector, place)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
