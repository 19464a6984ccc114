-- expand
-- Messages about one thing arrive in the order in which they were made: what closes an incident after what opens it.

alter table alert_delivery
    add column seq       bigint generated always as identity,
    add column dedup_key text generated always as (message ->> 'dedup_key') stored;
create index alert_delivery_subject on alert_delivery (project_id, channel_id, dedup_key, seq)
    where state = 'queued';
