-- expand
-- The link of an invitation that was mailed to its address. It has a secret of its own: the link that the inviter
-- handed over opens as before.

alter table invitation add column mailed_digest bytea;
alter table invitation add column mailed_at timestamptz;
alter table invitation add column mails smallint not null default 0;
