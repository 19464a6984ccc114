"""How long data is kept, and how much disk there is for it."""
