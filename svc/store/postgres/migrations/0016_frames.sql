-- contract
-- Payloads of spans that were written together share a frame: one row for each trace, day and write, instead of one
-- for each span. The row of a span names its frame. A frame carries the midnight of its day as `started_at`.

alter table span add column frame bigint;
alter table span_payload add column frame bigint;

-- Every payload that is there is the frame of one span, numbered by the id of that span.
update span set frame = ('x' || encode(span_id, 'hex'))::bit(64)::bigint;
update span_payload set frame = ('x' || encode(span_id, 'hex'))::bit(64)::bigint,
                        started_at = date_trunc('day', started_at, 'UTC');

alter table span alter column frame set not null;
alter table span_payload drop constraint span_payload_pkey;
alter table span_payload drop column span_id;
alter table span_payload alter column frame set not null;
alter table span_payload add primary key (project_id, trace_id, started_at, frame);
