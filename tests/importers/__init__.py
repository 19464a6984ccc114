"""Histories of other products, moved in."""
