"""What a model call costs."""
