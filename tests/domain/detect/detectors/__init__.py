"""Laws of what detectors see of a trace."""
