-- expand
-- Whether a name's numbers are more than 0 and 1, and which traces are counted anew for what they were rated
-- alone: those hold up nothing else.
alter table feedback_name add column graded boolean not null default false;
update feedback_name set graded = true where low not in (0, 1) or high not in (0, 1);
alter table fold_due add column rated boolean not null default false;
