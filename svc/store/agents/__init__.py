"""Runs of agents and what projects set of them: pressed, claimed, held by a lease, ended once.

`runs.py` moves runs, `outcomes.py` ends them together with what they decided, `claims.py` finds what a run is
about, `settings.py` has what projects set, `reads.py` what the fronts show.
"""
