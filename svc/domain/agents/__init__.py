"""What agents are asked and what of their answers counts: `briefs.py` asks, `schemas.py` says in which form,
`answers.py` checks, in the runner and again in the service. Pure.
"""
