"""`trace-svc completion bash | zsh | fish`: a script by which the shell completes our commands.

Made from the parsers that `--help` is made of, so that the two cannot differ. Needs no service.
"""

from __future__ import annotations

import argparse

from svc.commands.completable import levels
from svc.commands.completion_scripts import SHELLS
from svc.config.table import Settings

_HELP = """\
Prints a script that completes commands, options and their values in your shell:

  bash   echo 'source <(trace-svc completion bash)' >> ~/.bashrc
  zsh    echo 'source <(trace-svc completion zsh)' >> ~/.zshrc        (after compinit)
  fish   trace-svc completion fish > ~/.config/fish/completions/trace-svc.fish"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its argument."""
    parser.description = _HELP
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell: %(choices)s")


async def run(arguments: argparse.Namespace, _settings: Settings) -> None:
    """Print the script."""
    print(SHELLS[arguments.shell](levels()), end="")
