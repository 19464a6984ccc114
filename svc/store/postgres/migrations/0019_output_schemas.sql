-- expand
-- What a call site should answer, as a JSON Schema: imported with the taxonomy.
alter table call_site_intent add column output_schema jsonb;
