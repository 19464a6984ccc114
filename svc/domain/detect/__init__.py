"""The statistics of the detectors, pure: tallies and a stored reference in, states and alarms out.

`rate_engine` judges shares of failures, `drift_engine` durations and costs; both go slot by slot and never
look past the slot they judge. `states`, `severity`, `confirm`, `recover` and `join` turn what they say into
bucket states, findings and cases. Time and chance are arguments; nothing here does I/O.
"""
