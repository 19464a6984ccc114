"""What the service does for people and agents where one request is not all of it: rule, refusal, record.

- `run_requests`: what a run of an agent is asked, its key, and what its answer counts for;
- `runner_presence`: whether anybody has started a runner;
- `own_checks`, `alert_dispatcher`: what alerts see of this process, and how they are sent;
- `teeing`: what becomes of batches on their way to one more endpoint;
- `invitation_mail`: the mails with links of invitations;
- `running_process`, `demo_process`: what pages and dead letters are handed of this process, and the demo;
- `history_import`: moving in from another product;
- `upgrade_rehearsal`: what an upgrade of the schema will do, tried on a scratch server;
- `safekeeping`: what is known of the nightly backup and of the disk budget;
- `nightly_backup`: a backup as a process of its own;
- `start_checks`: what a start refuses or warns of;
- `shared_attempts`: attempts at signing in, counted by every copy;
- `shared_prices`: the operator's prices, in force in every copy;
- `open_store`: the database, embedded or served, open and of this release's schema;
- `brokers`: dead letters from the brokers of kafka mode, and batches read again;
- `addresses`: where things are by the settings, and which networks are near;
- `ingest_sizes`: how many drainers and connections there are by the settings;
- `bounds`: what an install takes in, keeps and has.

What a person does with one request (a case resolved, a key revoked, a member invited) is one function of
`svc.front.api`, which REST and pages both call: it has the caller, the form and the refusals in hand, and
transaction and audit row are one call into the store. Nothing here knows of HTTP or of pages; `svc.wiring`
hands these to the front's ports and to the actors.
"""
