"""Shapes that cross a border: OTLP, tokens, query bodies, our own messages, the table of refusals."""

from protocol.compiled import use

# Before the first module that may be compiled.
use()
