-- expand
-- Work that must be done by one copy of the service only: who does it, and for how long that is promised.
create table lease (
    name   text primary key,
    holder text not null,
    until  timestamptz not null
);
