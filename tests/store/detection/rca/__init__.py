"""Laws of root-cause analysis as it is stored."""
