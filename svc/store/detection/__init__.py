"""What detectors, triage and root-cause analysis write, and people decide.

Firings, findings, cases, the taxonomy.
"""
