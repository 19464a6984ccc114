-- expand
-- Cases, findings, their evidence, root-cause reports and the taxonomy; sizes of call sites and roll-ups.
--
-- Detectors write these through svc/store/detection/cases.py, findings.py and taxonomy.py; the tool endpoint reads them.

-- The last human reference of a project. Whoever opens a case locks its row until the commit, so that numbers
-- have neither gaps nor races.
create table case_counter (
    project_id  bigint primary key,
    last_number bigint not null
);

create table detection_case (
    project_id        bigint not null,
    id                uuid not null default gen_random_uuid(),
    number            bigint not null,
    detector          text not null,
    subject_kind      text not null,
    subject_id        text not null,
    subject_label     text not null,
    call_site_id      text,
    metric            text not null default '',
    state             text not null default 'open' check (state in ('open', 'muted', 'resolved')),
    title             text not null,
    basis             text not null,
    severity          text not null check (severity in ('low', 'medium', 'high')),
    severity_rank     smallint not null
        generated always as (case severity when 'high' then 3 when 'medium' then 2 else 1 end) stored,
    onset_at          timestamptz not null,
    current_value     double precision,
    baseline_value    double precision,
    delta             double precision,
    opened_at         timestamptz not null,
    last_seen_at      timestamptz not null,
    resolved_at       timestamptz,
    resolution        text,
    resolution_reason text,
    muted_at          timestamptz,
    finding_id        uuid,
    rca_report_id     uuid,
    -- What triage decided. Never shown over MCP.
    ruling            jsonb,
    primary key (project_id, id),
    unique (project_id, number),
    check ((state = 'resolved') = (resolved_at is not null))
);
-- Worst first, then most recently opened.
create index case_worst on detection_case (project_id, state, severity_rank desc, opened_at desc, id desc);
create index case_closed on detection_case (project_id, resolved_at desc, id desc) where state = 'resolved';
-- A detector has one living case for each subject and metric.
create unique index case_living on detection_case (project_id, detector, subject_kind, subject_id, metric)
    where state <> 'resolved';

create table case_event (
    project_id bigint not null,
    case_id    uuid not null,
    id         bigint generated always as identity,
    kind       text not null,
    actor      text not null,
    summary    text not null,
    created_at timestamptz not null,
    primary key (project_id, case_id, id)
);

create table finding (
    project_id       bigint not null,
    id               uuid not null default gen_random_uuid(),
    title            text not null,
    detector         text not null,
    cause_kind       text not null,
    cause_key        text not null,
    call_site_id     text,
    status           text not null,
    first_seen_at    timestamptz not null,
    last_seen_at     timestamptz not null,
    trace_count      integer not null,
    recurrences      integer not null default 0,
    -- Who confirms it: the rule that wrote it, or an agent that triages.
    triage_source    text not null check (triage_source in ('rule', 'agent')),
    confirmed        boolean not null,
    triage_status    text not null default 'none',
    -- The five fields below are never shown over MCP.
    triage_verdict   text,
    triage_action    text,
    triage_summary   text,
    triage_citations jsonb,
    triaged_at       timestamptz,
    evidence         jsonb not null default '{}',
    -- What the detector wrote at finding-open, per role.
    recorded_counts  jsonb not null default '{}',
    primary key (project_id, id),
    unique (project_id, detector, cause_kind, cause_key)
);
create index finding_seen on finding (project_id, triage_source, last_seen_at desc, id desc);

-- One compact row a measured row; role is the place in the list of roles (svc/store/detection/findings.py).
create table finding_evidence (
    project_id bigint not null,
    finding_id uuid not null,
    role       smallint not null check (role between 1 and 5),
    position   integer not null,
    rank       integer,
    session_id text,
    trace_id   bytea,
    span_id    bytea,
    primary key (project_id, finding_id, role, position),
    check (trace_id is not null or (session_id is not null and span_id is null))
);

create table rca_report (
    project_id  bigint not null,
    id          uuid not null default gen_random_uuid(),
    case_id     uuid not null,
    status      text not null check (status in ('running', 'done', 'failed')),
    report      jsonb,
    started_at  timestamptz not null,
    finished_at timestamptz,
    primary key (project_id, id),
    check ((status = 'done') = (report is not null))
);

create table pack (
    project_id  bigint not null,
    id          text not null,
    name        text not null,
    version     text not null,
    description text not null,
    primary key (project_id, id)
);

create table chain (
    project_id    bigint not null,
    id            text not null,
    name          text not null,
    description   text not null,
    call_site_ids text[] not null,
    primary key (project_id, id)
);

create table failure_mode (
    project_id      bigint not null,
    id              text not null,
    name            text not null,
    description     text not null,
    severity        text not null check (severity in ('low', 'medium', 'high')),
    scope           text not null check (scope in ('single_call', 'chain', 'trace')),
    call_site_id    text,
    chain_id        text,
    layer           text not null check (layer in ('A', 'B', 'C')),
    pack_id         text,
    compliance_tags text[] not null,
    primary key (project_id, id)
);

-- What a call site is for, as its owners say.
create table call_site_intent (
    project_id   bigint not null,
    call_site_id text not null,
    intent       text not null,
    shape        text,
    primary key (project_id, call_site_id)
);

-- How many subjects first-level classifiers looked at, by hour.
create table l1_eval (
    project_id    bigint not null,
    hour          timestamptz not null,
    classifier_id text not null,
    n             bigint not null,
    primary key (project_id, hour, classifier_id)
);

-- How far metric_rollup is.
create table metric_rollup_progress (
    project_id  bigint primary key,
    built_until timestamptz not null
);

-- Failed spans are few and asked for often: the newest of them without a walk over all others.
create index span_failed on span (project_id, created_at) where status = 'error';
-- Traces by the hour they arrived in, one entry a trace.
create index trace_created on trace (project_id, created_at);
