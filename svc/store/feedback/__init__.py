"""Feedback as it is kept: entries, the names that they have, and the sets that people keep together.

`writing` is called by the doors, by the writer of spans and by imports; `reads` by pages, REST and MCP.
"""
