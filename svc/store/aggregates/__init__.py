"""Numbers and indexes over closed hours, and counts that are kept as rows come and go.

Built off the hot path.
"""
