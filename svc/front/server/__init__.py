"""Below the application: one connection, and the ASGI door that sorts requests, counts and drains them."""
