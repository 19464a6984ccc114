"""The way of a finding, from settled traces to a page, in the order of the code.

Names are of modules here, in `svc.store.detection` and in `svc.domain.detect`. The process that all of this
runs in is `serving`; `process` starts it.

1. `rounds` lists the work of the process. `tally_updater` goes over the projects in which
   settled traces wait.
2. `counting.tallying` holds a project and reads some of its traces by `counting.settled_traces`.
3. `detectors.table` shows each trace to every detector; `detectors.call_errors` is one of them.
4. `counting.tallies` adds up what they saw, by subject and slot, and notes what became due for judges.
5. `detector_runner` holds a project for a detector; `judging.due` says which slots changed.
6. `judge` hands the tallies of a subject to `findings.judging`, which asks `engine.rate_engine` about shares
   of failures, the drift engine about sizes. What changed gets its words in `findings.finding_text` and its
   proof from `judging.judge_evidence`.
7. `cases.finding_states` writes the finding, withheld at first, with its evidence and a firing.
8. `case_keeper` reads the findings of a project by `cases.casework`. By `findings.case_rules` it confirms and
   joins them; `cases.case_findings` opens the case, and alerts hear of it in the same transaction.
9. `analyst` has `rca.cohorts` read the traces before and since; `svc.domain.rca.report` says what may be the
   cause, `rca.reports` keeps it.
10. `cases.cases` reads a case with its findings and the report on top; `svc.web.cases.triage` shows it.
"""
