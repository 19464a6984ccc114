"""What can be asked: datasets, their fields, measures."""
