-- expand
-- What people set of a detector in a project. Without a row it runs as its table says.

create table detector_setting (
    project_id bigint not null,
    detector   text not null,
    enabled    boolean not null default true,
    -- Which of its firings are shown: all of them, or those that are sure.
    mode       text not null default 'discovery' check (mode in ('discovery', 'tracking')),
    -- By name; what is not named has its default.
    tuning     jsonb not null default '{}',
    primary key (project_id, detector)
);

-- The newest firings of one detector.
create index classifier_event_of on classifier_event (project_id, classifier_id, created_at desc, id desc);
