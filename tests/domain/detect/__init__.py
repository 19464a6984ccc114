"""Laws of the rules of detection, room by room as the code has them."""
