"""Laws of log events that become spans."""
