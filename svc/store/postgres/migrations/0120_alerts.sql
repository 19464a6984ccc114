-- expand
-- Alerts: where they go, the rules that raise them, what each has told, and the messages on their way.

create table alert_channel (
    project_id   bigint not null,
    id           uuid not null default gen_random_uuid(),
    kind         text not null check (kind in ('webhook', 'slack', 'pagerduty', 'ntfy', 'email')),
    name         text not null check (name <> ''),
    -- Where it leads, as far as that is no secret.
    params       jsonb not null,
    -- Its secrets as JSON, sealed; null when it needs none.
    sealed       text,
    -- Tries in a row that came to nothing, and until when it is left alone for it.
    failures     integer not null default 0,
    rests_until  timestamptz,
    last_error   text,
    last_sent_at timestamptz,
    -- Its receiver said that it is gone: nothing is sent until somebody changes the channel.
    off_at       timestamptz,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    primary key (project_id, id),
    unique (project_id, name)
);

create table alert_rule (
    project_id  bigint not null,
    id          uuid not null default gen_random_uuid(),
    kind        text not null,
    name        text not null check (name <> ''),
    params      jsonb not null,
    channels    uuid[] not null,
    muted_until timestamptz,
    muted_by    text,
    -- When a rule that looks is to look next; null for one that is told.
    due_at      timestamptz,
    looked_at   timestamptz,
    -- Why its last look came to nothing.
    trouble     text,
    -- When it made a message last.
    told_at     timestamptz,
    created_at  timestamptz not null,
    updated_at  timestamptz not null,
    primary key (project_id, id),
    unique (project_id, name)
);
create index alert_rule_due on alert_rule (due_at) where due_at is not null;

-- What a rule that looks sees at present.
create table alert_watch (
    project_id bigint not null,
    rule_id    uuid not null,
    subject    text not null,
    since      timestamptz not null,
    seen_at    timestamptz not null,
    -- False: it began while the rule was muted.
    told       boolean not null,
    primary key (project_id, rule_id, subject)
);

-- The outbox: one row a rule and a thing it tells, written in the transaction of that thing.
create table alert_event (
    project_id  bigint not null,
    id          bigint generated always as identity,
    rule_id     uuid not null,
    subject     text not null,
    -- Tells one occurrence about a subject from another.
    mark        text not null,
    state       text not null check (state in ('told', 'firing', 'over')),
    facts       jsonb not null,
    occurred_at timestamptz not null,
    written_at  timestamptz not null default now(),
    -- When it was put into messages.
    gathered_at timestamptz,
    primary key (project_id, id),
    unique (project_id, rule_id, subject, mark)
);
create index alert_event_waiting on alert_event (project_id, rule_id, id) where gathered_at is null;
create index alert_event_written on alert_event (project_id, written_at);

-- Messages, each to one channel. Its id is what receivers tell a repetition by.
create table alert_delivery (
    project_id  bigint not null,
    id          uuid not null default gen_random_uuid(),
    channel_id  uuid not null,
    rule_id     uuid not null,
    message     jsonb not null,
    state       text not null default 'queued' check (state in ('queued', 'sent', 'dead')),
    tries       integer not null default 0,
    due_at      timestamptz not null,
    -- Null while nobody sends it.
    lease_token uuid,
    lease_until timestamptz,
    status      integer,
    failure     text,
    made_at     timestamptz not null,
    ended_at    timestamptz,
    primary key (project_id, id),
    check ((lease_token is null) = (lease_until is null)),
    check ((state = 'queued') = (ended_at is null)),
    check (state = 'queued' or lease_token is null)
);
create index alert_delivery_due on alert_delivery (due_at) where state = 'queued';
create index alert_delivery_channel on alert_delivery (project_id, channel_id) where state = 'queued';
create index alert_delivery_newest on alert_delivery (project_id, made_at desc, id desc);
