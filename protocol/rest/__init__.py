"""Bodies and answers of the REST routes as classes.

What is read from them, and what the document is made of.
"""
