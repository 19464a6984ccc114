"""The sandbox runner: a process of its own, perhaps on another machine, that runs agents.

`server.py` is its door, `runs.py` what it has under way, `conversation_loop.py` one run, `meter.py` its
budget, `toolbox.py` what its model may call, `sandbox.py` where scripts run. It keeps everything in memory,
knows no database, and opens nothing of the project but with the key that a request brings.
"""
