"""The buffer between the doors and the drainers: one passive object, three ways to keep it.

- `memory`: what every spool promises (`Spool`), and the one in memory.
- `disk`: SQLite beneath it; a 200 means fsynced.
- `broker`: a Kafka-API broker beneath it, with `link` (its actor), `assignment` (which partitions are ours)
  and `letters` (dead letters as messages).

`opening` holds one open, with its actor.
"""
