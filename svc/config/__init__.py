"""How the service is configured: types of values, the one table, the checks at the start, and its text."""
