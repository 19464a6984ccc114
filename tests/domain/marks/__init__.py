"""Laws of marks."""
