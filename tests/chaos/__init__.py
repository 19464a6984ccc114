"""Proof by breaking it: kills, full disks, absent databases, under load. `make chaos` runs it whole."""
