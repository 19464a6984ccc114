"""Laws of secrets in texts: they are found, and hidden in what is shown."""
