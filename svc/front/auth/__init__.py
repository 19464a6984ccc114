"""Who stands before a door.

Keys and their scopes, people and their cookies, from where they come, how often.
"""
