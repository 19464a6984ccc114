"""What is asked of stored traces, in rooms that each lean on those before them.

`questions` are the query API: datasets, measures, groups, pages of rows. `traces` lists, draws and counts
traces and spans, `one_trace` opens one. `usage` lists what and who traces are of: models, call sites,
sessions, users. `alerts` measures what alert rules watch. Beside them stand payloads, the search for rare
words that all of them use, and what only one page or command asks.
"""
