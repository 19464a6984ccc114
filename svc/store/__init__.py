"""The only SQL and the only asyncpg: one file a noun, migrations, partitions, the embedded server."""
