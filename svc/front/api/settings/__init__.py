"""How a project is set up, what it costs and what is removed from it."""
