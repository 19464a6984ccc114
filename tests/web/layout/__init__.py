"""The layout of the templates: lines of 120 columns, broken only where a line break shows nothing.

Owns how a template is written, not what it renders. `make format` writes it, and `tests/web/test_layout.py`
wants it. djLint 1.54 leaves a line alone as soon as two inline elements touch in it, which is most lines of
ours, and aligns what it breaks beyond the 120th column (tried in November 2026).

1. `atoms.py` reads a template into words, tags and what Jinja has.
2. `spaces.py` says before which of them a line break shows nothing.
3. `printing.py` writes them down again.
"""
