"""What a project tells, when, and where to."""
