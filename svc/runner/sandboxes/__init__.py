"""The kinds of sandboxes, each an implementation of the ports in `svc/runner/sandbox.py`."""
