-- expand
-- Texts that several payloads of a day share, stored once: a payload refers to them by hash.
--
-- Partitioned like the payloads, by the day that their spans start on, so that both go together.

create table span_message (
    project_id bigint not null,
    hash       bytea not null,
    started_at timestamptz not null,
    body       bytea not null,
    primary key (project_id, hash, started_at)
) partition by range (started_at);
alter table span_message alter column body set storage external;
create table span_message_default partition of span_message default;
