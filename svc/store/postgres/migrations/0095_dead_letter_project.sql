-- expand
-- The dead letters of a project, the newest first.

create index dead_letter_project on dead_letter (project_id, id);
