-- contract
-- Findings and cases that live: a cause closes and returns, a case reopens, mutes end, references move.
--
-- Nothing wrote findings or cases before this step but tests, so their keys may change in place.

alter table finding
    add column basis          text not null default '',
    add column severity       double precision not null default 0,
    -- False for an improvement, which is for information only.
    add column harmful        boolean not null default true,
    add column subject_kind   text not null default '',
    add column subject_id     text not null default '',
    add column subject_label  text not null default '',
    add column metric         text,
    add column current_value  double precision,
    add column baseline_value double precision,
    add column delta          double precision,
    -- What of its detector's the present is compared with; null when it compares with nothing.
    add column reference      text,
    add column onset_at       timestamptz,
    add column onset_low_at   timestamptz,
    add column onset_high_at  timestamptz,
    -- Who decided of it last: rule, agent or person, and their name.
    add column ruled_by_kind  text,
    add column ruled_by       text,
    add column confirmed_at   timestamptz,
    add column closed_at      timestamptz,
    add column closed_by      text,
    -- Why it is closed: resolved, recovered, absorbed or rejected.
    add column closed_as      text,
    -- The finding of the same cause before this one.
    add column previous_id    uuid,
    -- The place that the next reference of its evidence takes.
    add column next_position  integer not null default 0;

update finding f set onset_at = first_seen_at,
    status = case when status in ('closed', 'dismissed', 'resolved') then 'closed'
                  when confirmed then 'confirmed' else 'withheld' end,
    closed_at = case when status in ('closed', 'dismissed', 'resolved') then last_seen_at end,
    next_position = (select coalesce(max(position) + 1, 0) from finding_evidence e
                     where e.project_id = f.project_id and e.finding_id = f.id);
alter table finding
    alter column onset_at set not null,
    add check (status in ('withheld', 'confirmed', 'rejected', 'closed')),
    add check ((status in ('rejected', 'closed')) = (closed_at is not null)),
    drop constraint finding_project_id_detector_cause_kind_cause_key_key;

-- One finding of a cause is live at a time; behind it are those that were.
create unique index finding_live on finding (project_id, detector, cause_kind, cause_key)
    where closed_at is null;
create index finding_cause on finding (project_id, detector, cause_kind, cause_key, last_seen_at desc);

-- A reference stands once in each role, whoever writes it again.
delete from finding_evidence e using finding_evidence o
    where o.project_id = e.project_id and o.finding_id = e.finding_id and o.role = e.role
      and o.trace_id is not distinct from e.trace_id and o.span_id is not distinct from e.span_id
      and (e.trace_id is not null or o.session_id = e.session_id) and o.position < e.position;
create unique index finding_evidence_once on finding_evidence (project_id, finding_id, role,
    (coalesce(trace_id, '')), (coalesce(span_id, '')), (case when trace_id is null then session_id else '' end));

-- What a case lists. A finding stands in one case.
create table case_finding (
    project_id      bigint not null,
    finding_id      uuid not null,
    case_id         uuid not null,
    role            text not null check (role in ('cause', 'effect')),
    explained_share double precision,
    joined_at       timestamptz not null,
    primary key (project_id, finding_id)
);
create index case_finding_case on case_finding (project_id, case_id);
insert into case_finding (project_id, finding_id, case_id, role, joined_at)
    select distinct on (c.project_id, c.finding_id) c.project_id, c.finding_id, c.id, 'cause', c.opened_at
    from detection_case c join finding f on f.project_id = c.project_id and f.id = c.finding_id
    order by c.project_id, c.finding_id, c.opened_at desc;

alter table detection_case
    add column severity_score double precision not null default 0,
    -- The severity that people were told last: at the opening, or by `escalated`.
    add column severity_told  double precision not null default 0,
    add column muted_by       text,
    -- Null while a mute has no end.
    add column muted_until    timestamptz,
    add column resolved_by    text;
update detection_case set severity_score = case severity when 'high' then 0.8 when 'medium' then 0.5 else 0.2 end;
update detection_case set severity_told = severity_score;
-- Whether a case is living is its findings' to say.
drop index case_living;
create index case_mute_ends on detection_case (project_id, muted_until)
    where state = 'muted' and muted_until is not null;

-- References that are to move, and, once they have, the log of those that did.
create table reference_move (
    project_id   bigint not null,
    id           bigint generated always as identity,
    detector     text not null,
    reference    text not null,
    -- What was measured from here on is the new normal.
    from_at      timestamptz not null,
    finding_id   uuid not null,
    asked_by     text not null,
    asked_at     timestamptz not null,
    applied_at   timestamptz,
    withdrawn_at timestamptz,
    primary key (project_id, id)
);
create unique index reference_move_pending on reference_move (project_id, detector, reference)
    where applied_at is null and withdrawn_at is null;
