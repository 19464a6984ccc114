"""Answers from spans by column: `asked` of `segments`, of the `rows` beside them, and put together."""
