"""The way of a batch, from bytes to rows, in the order of the code.

1. A door (`svc.front.otlp`) holds room in the spool (`actors.spool`), takes the body in and inflates it. What
   it holds is counted and its spans are screened (`protocol.otlp.admission`: in the loop when it is small,
   piece by piece in a thread when it is large). The batch is offered to the spool, which answers at once.
2. A drainer (`actors.drainer`) leases what waits and hands the group on: to a decoder process
   (`svc.ingest.decoder`, over a pipe) or to `writer` in this process.
3. `writer` reads the batch again and walks its spans (`svc.domain.intake.batches`): each is mapped by its
   dialect (`svc.domain.intake.mapping`), priced (`svc.domain.pricing.prices`, the operator's own prices by
   `prices`), rolled up with the group (`svc.domain.traces.rollup`) and its payload packed
   (`svc.domain.intake.packing`).
4. `svc.store.spans.writing` stores the group in one transaction; the drainer settles the lease. What
   PostgreSQL refuses twice is buried span by span (`svc.store.spans.dead_letters`).
"""
