"""One trace opened: its skeleton, what it said, what its numbers are made of, its graph and its kin."""
