"""Shapes that cross a border: OTLP, tokens, query bodies, our own messages, the table of refusals."""
