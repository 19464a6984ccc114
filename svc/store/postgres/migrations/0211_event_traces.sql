-- expand
-- concurrently
-- The events of a trace: its page shows them, and they go with it.
create index classifier_event_trace on classifier_event (project_id, subject_trace_id, classifier_id) where subject_trace_id is not null;
