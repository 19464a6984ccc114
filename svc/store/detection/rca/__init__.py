"""Root-cause analysis: `reports` keeps them, `cohorts` reads the traces that one compares."""
