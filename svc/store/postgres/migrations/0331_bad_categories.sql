-- expand
-- The categories of a name that somebody called bad; of any other nobody knows whether more of it is better.
alter table feedback_name add column bad text[] not null default '{}';
