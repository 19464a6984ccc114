"""Attributes that become fields: what applications say of themselves beside what the mapping reads.

`conventions` names the fields that every project has, with the spellings of the dialects. `reading` takes
the values of a span on the hot path. `census` counts which other keys there are and finds those that are
worth a field.
"""
