"""Laws of what becomes of an alarm: findings, and whether they are confirmed, joined and over."""
