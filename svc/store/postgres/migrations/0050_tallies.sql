-- backfill
-- What detectors count, by bucket and slot of event time, and the traces that are still to be counted.

-- Traces that settled, in the order in which they did. One that settles again before it is folded stands here
-- twice. Rows come and go all the time.
create table fold_due (
    project_id bigint not null,
    place      bigint generated always as identity,
    trace_id   bytea not null,
    primary key (project_id, place)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Who folds a project, until when, and how far its tallies have been tidied. Slots are five minutes from 1970.
create table fold_state (
    project_id    bigint primary key,
    holder        uuid,
    held_until    timestamptz,
    -- Below this slot tallies stand in the first slot of their hour; what is told of it later goes there too.
    hours_before  integer not null default 0,
    -- Below this slot all of them have been brought there; of what lies between, buckets up to tidied_bucket.
    tidied_before integer not null default 0,
    tidied_bucket bigint not null default 0,
    -- Below this slot there are none any more, and nothing is counted.
    gone_before   integer not null default 0
);

-- What is counted: a measure of a subject, under a detail where the measure has details.
create table tally_bucket (
    project_id bigint not null,
    id         bigint generated always as identity,
    measure    text not null,
    subject    text not null,
    detail     text not null default '',
    primary key (project_id, id),
    unique (project_id, measure, subject, detail)
);

-- Units and failures of a rate stand in bin 0, values of a size in their bin.
create table tally (
    project_id bigint not null,
    bucket_id  bigint not null,
    slot       integer not null,
    bin        smallint not null,
    units      bigint not null,
    failures   bigint not null,
    primary key (project_id, bucket_id, slot, bin)
) with (fillfactor = 80);

-- The traces behind failures: the spans that show it, and its kind.
create table tally_witness (
    project_id bigint not null,
    bucket_id  bigint not null,
    slot       integer not null,
    trace_id   bytea not null,
    spans      bytea[] not null,
    signature  text,
    primary key (project_id, bucket_id, slot, trace_id)
);

-- What a trace was folded as, so that it can be taken out again. The slot is that of its first span.
create table trace_fold (
    project_id bigint not null,
    trace_id   bytea not null,
    slot       integer not null,
    spans      integer not null,
    texts      integer not null,
    body       bytea not null,
    primary key (project_id, trace_id)
);
create index trace_fold_slot on trace_fold (project_id, slot);

-- What is there already and young enough to be kept in slots of five minutes.
insert into fold_due (project_id, trace_id)
select project_id, trace_id from trace
where next_at is null and started_at > now() - interval '35 days' order by started_at;
