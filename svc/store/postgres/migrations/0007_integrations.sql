-- expand
-- Integrations with other systems, their secrets sealed; and what an instance knows of itself.

create table integration (
    org_id     bigint not null,
    id         uuid not null default gen_random_uuid(),
    kind       text not null check (kind in ('model_provider', 'git')),
    provider   text not null,
    name       text not null check (name <> ''),
    base_url   text,
    username   text,
    -- Key id, nonce, ciphertext and tag in base64; null when the integration needs no secret.
    sealed     text,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (org_id, id),
    unique (org_id, kind, name)
);

create table instance_fact (
    name  text primary key,
    value text not null
);
