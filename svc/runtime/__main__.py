"""`python -P -m svc.runtime MODULE ARGUMENTS…`: run a module of ours as the child of a process of ours.

Only `svc.runtime.child` starts this. A child whose code or libraries are missing says so in one sentence.
"""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    """Run the module of the first argument; the others are its own."""
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except ImportError as error:
        sys.exit(f"trace-svc: the process {module} cannot start: {error}")


if __name__ == "__main__":
    main()
