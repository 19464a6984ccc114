"""Laws of what judges work with."""
