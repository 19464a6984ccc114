"""Secrets in texts: `formats` has their forms, `search` finds them, `masking` hides them in what is shown."""
