"""Below every table.

Connections and outages, migrations, day partitions, and the small pieces all SQL is made of.
"""
