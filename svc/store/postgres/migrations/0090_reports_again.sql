-- expand
-- Reports by rule are made of cases that recovered before anybody looked, too, and made anew where traffic was
-- too little.

alter table detection_case
    -- How often a report was put off for want of traffic, until when, and the traces of its finding by then.
    add column rule_report_tries  smallint not null default 0,
    add column rule_report_after  timestamptz,
    add column rule_report_traces integer;

drop index case_rule_report_due;
create index case_rule_report_due on detection_case (opened_at) where rule_report_due;
