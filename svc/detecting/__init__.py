"""Detection in a process of its own: its rounds, how it runs them, and how the service launches it.

Read in this order: `rounds` (the table), `serving` (the child), `process` (the service's end).
"""
