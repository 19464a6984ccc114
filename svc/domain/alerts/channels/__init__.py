"""What each kind of channel makes of a message: one file a kind behind the table of `table`.

Pure functions from a message to an HTTP request or a mail. Secrets: what they return may hold one.
"""
