"""Laws of findings and cases as they are stored."""
