"""From an accepted batch to rows: mapping by dialect, masking, packing of payloads, and back again."""
