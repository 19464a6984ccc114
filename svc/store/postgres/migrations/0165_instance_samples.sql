-- expand
-- What the instance knew of itself, once an hour: by it is told when a rule about its disk, its backup or its
-- certificate would have fired. A few thousand rows at most.

create table instance_sample (
    -- The kind of rule that judges it.
    kind     text not null,
    hour     timestamptz not null,
    taken_at timestamptz not null,
    facts    jsonb not null,
    primary key (kind, hour)
);
