"""What detectors, triage and root-cause analysis write, and people decide.

Firings, findings with their evidence, cases, references that are to move, reports, the taxonomy.
"""
