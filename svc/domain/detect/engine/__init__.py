"""The statistics of the detectors: tallies and a stored reference in, states and alarms out.

`rate_engine` judges shares of failures, `drift_engine` durations and costs; both go slot by slot and never
look past the slot they judge. `axis` and `slots` do without numpy, which the process that serves people does
not load.
"""
