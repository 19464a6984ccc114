"""The command line: a file a command.

Standard output carries what the user asked for, the log goes to standard error.
"""
