"""Laws of the engines, on simulated traffic with fixed seeds: nulls stay silent, changes are found."""
