-- expand
-- Vitals told tools by the names of their spans. Hours that people compare are built anew, as hours are whose
-- spans changed; until then they stand under the old names.
insert into cube_dirty (project_id, dataset, hour, marked_at)
select distinct project_id, 'spans', hour, now() from vital_cube
where what = 'tools' and hour >= now() - interval '15 days'
on conflict do nothing;
