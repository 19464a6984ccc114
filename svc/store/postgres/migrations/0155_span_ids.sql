-- expand
-- In which hours a span of an id came, so that an id that somebody pastes is found without the keys of every trace.
--
-- Built with the hourly cubes, and current exactly where they are: the last four bytes of the ids of an hour, by the
-- last five bits. Bucket -1 says that the hour has been built.

create table span_ids (
    project_id bigint not null,
    bucket     smallint not null,
    hour       timestamptz not null,
    endings    bytea not null,
    primary key (project_id, bucket, hour)
);
create index span_ids_hour on span_ids (project_id, hour);

-- Every hour is counted anew.
insert into cube_dirty (project_id, dataset, hour, marked_at)
select project_id, 'spans', hour, now() from cube where dataset = 'spans' and field = ''
on conflict do nothing;
