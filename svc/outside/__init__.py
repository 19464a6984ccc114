"""Clients of other systems, each behind a port of the actors."""
