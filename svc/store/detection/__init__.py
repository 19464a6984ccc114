"""What detectors, triage and root-cause analysis write, and people decide, in the order of the work.

`counting` turns settled traces into tallies. `cases` keeps firings, findings with their evidence, and cases.
`rca` reads the cohorts of a case and keeps its reports. `judging` says what is due for detectors and keeps
what each knows of its subjects. Each knows those named before it and none behind it. Loose: the taxonomy, and
`holding`, which frees what killed rounds held.
"""
