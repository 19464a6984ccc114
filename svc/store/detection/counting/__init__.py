"""Settled traces become tallies: `tallying` reads them by `settled_traces` and writes by `tallies`; `tidying`
keeps tallies small; `charts` and `tally_sums` read them for people.
"""
