"""Who exports what, and what they could do better."""
