"""What is plugged into what.

The only room that knows classes of every other. It builds objects and hands them to one another; what they
do, and what follows from the settings, stands in other rooms.
"""
