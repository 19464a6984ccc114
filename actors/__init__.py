"""The things with a lifetime, and how they hang together.

An actor is a class with `async def run(self, *, task_status)`. `keep` builds it anew at each start and
restarts it after a crash; what ingest and answers can do without is *spare* and never ends the process;
everyone else holds a handle or a passive object that the wiring lends.

    doors ──offer──▶ Spool ──lease──▶ Drainer × n ──write──▶ DecoderProcess × n ──▶ store
      │               ▲                    └──bury──▶ dead letters
      │               └ DiskWriter, BrokerLink make it durable
      │
      │   TraceRoller × 2 ──settle──▶ store ◀──build── HourBuilder × 2
      │                                 "   ◀──make─── Partitioner
      │   exporter-writer ──add──▶      "   ◀─expire── RetentionSweeper, ◀─empty── Purger
      │                               ◀─erase── Eraser
      │   DetectingProcess ══▶ TallyUpdater, judges, CaseAnalyst ────▶ "  (a process of its own)
      │   Launcher ◀─claim─ store; ══▶ sandbox runner (RunnerChild, or another machine's)
      │                               ◀─count─── Heartbeat ──▶ its host
      │                               ◀─measure, drop─── DiskBudget ──refuses──▶ doors
      ├──offer──▶ Tee ◀─take── TeeForwarder ──▶ the endpoint that somebody compares with
      │   AlertWatcher × 2 ──look, tell──▶ store ──▶ AlertGatherer ──queue──▶ store
      │   AlertDeliverer × 3 ◀─claim─ store; ──send──▶ channels of people
      │   NightlyBackup ══▶ `trace-svc backup` (a process of its own) ◀─read─ store
      │   WalKeeper ◀─copy─── the WAL of the embedded server
      │
      ├──verify──▶ KeyCache ──look up──▶ store ──revocations──▶ RevocationListener ──evict──▶ Verdicts
      │
      └──show◀── OwnCertificate ◀── files, AcmeCertificate ◀──▶ the certificate authority

    AttemptQueue ──▶ AttemptReporter ──▶ store ──notices──▶ NotificationListener (attempts, prices, TLS)
    LeaseKeeper ──take──▶ store; Heartbeat and AcmeCertificate ask `Leases` whether it is on this copy

The arrows are the whole graph; it has no cycle, so no two actors can wait for each other.
The spool and the table of verdicts are passive: they hold state, the actors hold time.

Read in this order: `supervision`, `ports`, `spool`, `rounds`, `drainer`, `decoders` (over `child_pipe`;
`compiled` renews them), `keys`, `roller`; then the other spools (`disk`, `broker`), the quiet loops
(`partitions`, `hours`, `sweeper`, `purger`, `eraser`, `certificates`, `leases`, `attempts`, `disk_budget`,
`backups`, `alerts`, `alert_outage`, all of them `rounds`), `tee`, `notifications`, and `detecting` (what runs
in the other process is in `svc.detecting`), at last `launcher` and `runner_child`.
"""
