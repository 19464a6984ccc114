"""What goes: days past their term, rows of a project with a shorter one, deleted projects.

And how much there is.
"""
