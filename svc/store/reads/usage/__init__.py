"""What and who traces are of: models, call sites, agents, sessions, users, bills, two of them compared."""
