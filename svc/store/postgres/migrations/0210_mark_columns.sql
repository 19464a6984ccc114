-- expand
-- What a mark of a trace says beside a detector's firing: the span of the model call that asked for what the
-- event is about, and the version of the rule.
alter table classifier_event add column cause_span_id bytea, add column version smallint;
