-- expand
-- A key that is good for MCP alone has a purpose and no end, as one for feedback: somebody makes it, sees it listed
-- and revokes it.
alter table api_key drop constraint api_key_check;
alter table api_key add constraint api_key_check check (
    case when purpose in ('feedback', 'mcp') then expires_at is null else (purpose is null) = (expires_at is null) end);
