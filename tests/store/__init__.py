"""Laws of the store."""
