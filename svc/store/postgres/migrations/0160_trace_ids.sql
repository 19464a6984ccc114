-- expand
-- The ids of the traces of an hour, packed, and which pieces of five characters they have: most of them are passed
-- over when a trace is asked for by a part of its id. Hours that are there already are made up for by the builder.

create table trace_id_block (
    project_id       bigint not null,
    -- The hour in which the traces were stored, cut into blocks.
    hour             timestamptz not null,
    place            integer not null,
    first_started_at timestamptz not null,
    last_started_at  timestamptz not null,
    -- Sixteen bytes each.
    ids              bytea not null,
    -- A bit for each piece, a power of two of bits.
    pieces           bytea not null,
    primary key (project_id, hour, place)
);
create index trace_id_block_latest on trace_id_block (project_id, last_started_at desc, hour desc, place desc);
-- Random as they are, they do not compress; and of what is not compressed a byte is read by itself.
alter table trace_id_block alter ids set storage external, alter pieces set storage external;
