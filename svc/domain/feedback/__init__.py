"""What people and programs think of an answer."""
