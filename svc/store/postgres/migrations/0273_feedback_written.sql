-- expand
-- concurrently
-- What people and programs wrote, the newest first.
create index feedback_written on feedback (project_id, created_at desc) where text is not null;
