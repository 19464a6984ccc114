-- expand
-- The repository that a project's agents may read: clone_url, ref, integration_id.
alter table agent_setting add column repository jsonb;
