"""What detectors see of a settled trace, before anything is counted: one detector a file.

`table` lists them, `detector` says what each is made of, `observed` what they make.
"""
