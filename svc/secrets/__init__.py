"""Secrets at rest.

Sealing values under `SVC_SECRET_KEY` (`sealing`), and those that a start makes itself (`own`).
"""
