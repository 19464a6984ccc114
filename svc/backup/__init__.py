"""Backups of a whole instance: a folder of files named by their digests, and a manifest that comes last.

`folder` owns the files, `taking` makes a backup, `restoring` brings one back, `verifying` tries one out,
`spool` is about the batches of disk mode, `sealed` about the secrets. `remote` copies them to an object store
and back, by `fetching`. The database is `svc.store.backup`.
"""
