"""The service itself: domain rules, storage, fronts, and the one file that wires them (`serve.py`)."""
