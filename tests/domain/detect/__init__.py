"""The statistics of the detectors: laws, nulls and changes, all on simulated traffic with fixed seeds."""
