"""What an operator reads at the end of a command: one sentence instead of a traceback."""

from __future__ import annotations


class OperatorError(Exception):
    """An expected end. Its text is a whole sentence that says what is wrong and, where it can, what to do."""
