"""Laws of counting: each settled trace once, whatever happens."""
