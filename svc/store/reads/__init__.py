"""What is asked of stored traces.

The query API's datasets, pages of every noun, and looking up what is rare.
"""
