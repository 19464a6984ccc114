"""Marks: facts about one settled trace.

`table` lists them, `rules` finds them in a trace. `tool_calls` knows which model call asked for which tool,
`tool_schemas` what a tool may be called with.
"""
