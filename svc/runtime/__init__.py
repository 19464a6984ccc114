"""What a process needs whatever it does: its log, its clock, its garbage, its asyncio loop."""
