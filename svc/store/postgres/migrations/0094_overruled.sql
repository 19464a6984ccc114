-- expand
-- What was decided of a finding before somebody rejected it, for whoever takes the rejection back.

alter table finding
    add column overruled jsonb;
