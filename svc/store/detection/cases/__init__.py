"""Findings and cases: `finding_states` and `case_states` move them, `case_findings` joins the two, `casework`
is what the case keeper reads, `findings`, `cases` and `inbox` what people read, `trail` the turn that all
take.
"""
