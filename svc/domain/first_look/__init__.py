"""The first look: what can be said of a project from its first traces on, before anything can be compared."""
