"""The command line: a file a command.

Standard output carries what the user asked for, the log goes to standard error. To add a command: its file,
with `add(parser)` for its arguments and `async run(arguments, settings)`, and its line in `table.py`. A file
is imported only when its command is given, and `add` knows nothing of what `run` needs: help answers at once.
"""
