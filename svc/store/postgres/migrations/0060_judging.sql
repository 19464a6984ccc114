-- expand
-- What detectors still have to judge, how far each got, and what a finding was measured by.

-- Slots of a bucket that changed since a detector judged them. The turn counts changes, so that whoever judges
-- takes away only what they have seen.
create table tally_due (
    project_id bigint not null,
    detector   text not null,
    bucket_id  bigint not null,
    from_slot  integer not null,
    last_slot  integer not null,
    turn       bigint not null default 1,
    primary key (project_id, detector, bucket_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- How far the events of a project reach, and the earliest slot that was counted lately: what is older than
-- that is complete. Lately is the present stretch of time, and the one before it.
alter table fold_state
    add column newest_slot   integer,
    add column touched_since timestamptz,
    add column touched_low   integer,
    add column before_low    integer;

-- Who judges a project for a detector, until when, and how far it got. One that raised says what and when.
create table judge_state (
    project_id bigint not null,
    detector   text not null,
    holder     uuid,
    held_until timestamptz,
    judged_at  timestamptz,
    until_slot integer,
    -- It goes on when a case has heard that an earlier finding was over.
    waits      boolean not null default false,
    failed_at  timestamptz,
    failure    text,
    primary key (project_id, detector)
);

-- What is known of a subject after the last slot judged, and the same at midnights, to go back to when
-- something changes late.
create table bucket_state (
    project_id bigint not null,
    detector   text not null,
    measure    text not null,
    subject    text not null,
    cursor     integer not null,
    body       bytea not null,
    primary key (project_id, detector, measure, subject)
);
create table bucket_checkpoint (
    project_id bigint not null,
    detector   text not null,
    measure    text not null,
    subject    text not null,
    cursor     integer not null,
    body       bytea not null,
    primary key (project_id, detector, measure, subject, cursor)
);

alter table finding
    -- When its cause had gone; its case is still to hear of that.
    add column recovered_at  timestamptz,
    -- How far its evidence has been gathered: members, by slot and trace.
    add column gathered_slot integer not null default 0,
    add column gathered_id   bytea not null default '';
