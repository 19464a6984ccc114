-- backfill
-- Invitations with a secret, who decided who may join, who minted a key, known addresses, look-alike names.

-- The digest of the invitation's secret. Null: from before there were secrets; only the word of an identity
-- provider takes it up.
alter table invitation add column digest bytea;
alter table invitation add column expires_at timestamptz not null default now() + interval '7 days';

-- What a sign-up without an invitation makes of a person.
alter table organization add column signup_role text not null default 'viewer'
    check (signup_role in ('viewer', 'member'));
-- When somebody said who may join; null: nobody has yet, and the default holds.
alter table organization add column signup_decided_at timestamptz;
update organization o set signup_decided_at = now()
    where exists (select from audit_row a where a.org_id = o.id and a.action = 'signup_policy.update');

-- Who saw the plaintext last, as the audit names them.
alter table api_key add column minted_by text not null default 'unknown';
update api_key k set minted_by = a.actor
    from (
        select distinct on (subject_id) subject_id, actor from audit_row
        where subject_kind = 'key' and action in ('key.create', 'key.rotate') and actor not like 'key:%'
        order by subject_id, id desc
    ) a
    where a.subject_id = k.id::text;
alter table api_key alter column minted_by drop default;
create index api_key_minted_by on api_key (minted_by) where revoked_at is null;

-- From where an account signed in before: keyed digests of addresses, a bounded number of them.
create table known_address (
    account_id uuid not null references account (id) on delete cascade,
    digest     bytea not null,
    seen_at    timestamptz not null default now(),
    primary key (account_id, digest)
);

-- What an address looks like (`svc/domain/likeness.py`); null: not worked out yet.
alter table account add column likenesses text[];
create index account_likenesses on account using gin (likenesses);
create index account_unlikened on account (id) where likenesses is null;

-- Addresses are compared in their compatible form from now on; of two that meet in it, both stay as they were.
update account a set email_key = lower(normalize(a.email_key, nfkc))
    where lower(normalize(a.email_key, nfkc)) <> a.email_key
    and not exists (
        select from account b
        where b.id <> a.id and lower(normalize(b.email_key, nfkc)) = lower(normalize(a.email_key, nfkc))
    );
