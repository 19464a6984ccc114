-- expand
-- Fields that spans have by convention or because a key was promoted: each value is one character of the project's
-- dictionary, and a span has the characters of its values in one text. Null on rows of before; `remap` gives them theirs.

alter table span add column facets text collate "C";

-- How many codes a project has given out; a code is never given out twice.
create table attribute_counter (
    project_id bigint primary key,
    given      integer not null
);

-- The dictionary. The empty value stands for all beyond the most that a field may have.
create table attribute_value (
    project_id bigint not null,
    field      text not null,
    value      text not null,
    code       text collate "C" not null,
    primary key (project_id, field, value),
    unique (project_id, code)
);

-- Keys beside the conventions, as fields are called, with what was counted of them; and conventions that are hidden.
-- `hashes` are eight bytes for each value that was seen.
create table attribute_key (
    project_id   bigint not null,
    field        text not null,
    state        text not null check (state in ('seen', 'promoted', 'hidden')),
    spans        bigint not null,
    hashes       bytea not null,
    unfit        text,
    last_seen_at timestamptz not null,
    primary key (project_id, field)
);
create index attribute_key_decided on attribute_key (project_id, field) where state <> 'seen';
