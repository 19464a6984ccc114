-- expand
-- A key for feedback alone has a purpose and no end: somebody makes it, sees it listed and revokes it.
alter table api_key drop constraint api_key_check;
alter table api_key add constraint api_key_check
    check (case when purpose = 'feedback' then expires_at is null else (purpose is null) = (expires_at is null) end);
