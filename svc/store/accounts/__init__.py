"""Who may do what.

People, organizations, members, projects, keys, sealed credentials, and the audit of it all.
"""
