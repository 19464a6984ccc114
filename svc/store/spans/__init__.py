"""Writing traces.

Spans and payloads, traces and sessions rolled up, call sites, dead letters, and working history over.
"""
