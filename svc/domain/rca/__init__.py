"""Root cause by rule, pure: two cohorts of a finding in, a report out.

`cohort` says what a unit is and which attributes it has, `statistics` holds the tests, `shares` asks each
attribute whether it moved, explains and holds, `parts` takes a change apart, `verdict` decides, `report`
puts it into words. Chance and time are arguments; nothing here does I/O.
"""
