"""Reading a whole database into a backup, and filling an empty one from it.

Tables, columns and sequences come from the catalog, never from a list: a table that a migration adds tomorrow
is in tomorrow's backup. The folder and its files are `svc.backup`.
"""
