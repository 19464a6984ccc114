-- expand
-- Reports say who makes them, the rule or an agent; cases, whether the rule has still to.

alter table rca_report
    add column engine text not null default 'rule' check (engine in ('rule', 'agent'));
create index rca_report_case on rca_report (project_id, case_id);

-- True from each opening of the case until a report by rule is begun.
alter table detection_case
    add column rule_report_due boolean not null default true;
create index case_rule_report_due on detection_case (opened_at) where rule_report_due and state <> 'resolved';
