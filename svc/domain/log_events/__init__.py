"""Log events that tell of an agent's work, made into spans: one agent per file behind one table."""
