-- expand
-- Since when an attribute is a field; null where its values are on earlier spans, too.
alter table attribute_key add column promoted_at timestamptz;
