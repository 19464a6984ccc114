"""Spans by column: the values of one field side by side, so that a question reads what it asks for.

`encoding` packs segments, `scanning` adds each up, `segment_sums` holds what all of a question come to,
`smallest_ends` which traces its spans are of. Pure.
"""
