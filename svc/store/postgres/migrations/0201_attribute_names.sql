-- expand
-- What people call the field of a key, where that is not its own name: 'attr.plan', or one of the conventions.
alter table attribute_key add column called text;
