-- expand
-- Whoever sends a revoked key is told so: keys are looked up by prefix whatever their state.
create index api_key_any_prefix on api_key (token_prefix);
drop index api_key_prefix;
