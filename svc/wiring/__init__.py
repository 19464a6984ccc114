"""What is plugged into what.

The only room that knows classes of every other; nothing here decides anything.
"""
