"""What detectors see of a settled trace, before anything is counted: one detector a file.

`table` lists them, `base` says what each is made of and what it makes.
"""
