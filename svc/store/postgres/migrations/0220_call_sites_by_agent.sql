-- expand
-- What detectors take for a call site: what was sent, each agent that calls there, or both while a project that
-- learned by the former goes over to the latter. New projects tell agents apart from their first trace on.
alter table project add column site_grain text not null default 'sent'
    check (site_grain in ('sent', 'both', 'agent'));
alter table project alter column site_grain set default 'agent';
