"""Other products, as they are installed, whose history is moved in: `make test-imports`."""
