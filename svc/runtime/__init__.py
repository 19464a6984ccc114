"""What the process itself needs whatever it does: its log, its clock, its garbage."""
