-- expand
-- The hours in which a value occurs, for pages that are narrowed to a value without an index of its own.

create index cube_value on cube (project_id, dataset, field, value, hour) include (n)
    where field in ('kind', 'name', 'model_id');
