"""`POST /mcp`: the protocol (`endpoint`), the table of tools, their arguments, and what answers each."""
