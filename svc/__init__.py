"""The service itself: domain rules, storage, fronts, and the one file that wires them (`serve.py`)."""

from protocol.compiled import use

# Before the first module that may be compiled.
use()
