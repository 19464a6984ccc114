"""What can be seen of a service that runs on this machine already: the data folder it was started with.

Called by commands that must not mistake it for the service of their own folder. Read from `/proc`, where
there is one and the service is this account's own. Connects to nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from protocol.operator import OperatorError
from svc.config.table import read_settings
from svc.front.server.listening import holding_processes


def serving_process(port: int) -> Path | None:
    """The folder below /proc of a service of ours on this port, passing over others that hold its socket."""
    for process in holding_processes(port):
        # It may end meanwhile.
        with suppress(OSError):
            words = words_of(process)
            ours = any("trace-svc" in word or word.startswith("svc") for word in words)
            if "serve" in words and ours:
                return process
    return None


def served_folder(port: int) -> Path | None:
    """The data folder of a service of ours on this port; None of others, and where it cannot be seen."""
    process = serving_process(port)
    if process is None:
        return None
    with suppress(OSError, OperatorError):
        words = words_of(process)
        env = environment_of(process)
        for word, value in zip(words, [*words[1:], ""], strict=True):
            if word.startswith("--data-dir"):
                env["SVC_DATA_DIR"] = word.partition("=")[2] or value
        return Path(os.readlink(process / "cwd")) / read_settings(env).data_dir
    return None


def words_of(process: Path) -> list[str]:
    """The command of a process. Raises `OSError` where it has ended, or is closed to us."""
    return _strings(process / "cmdline")


def environment_of(process: Path) -> dict[str, str]:
    """The variables that a process was started with. Raises `OSError` likewise."""
    return dict(pair.split("=", 1) for pair in _strings(process / "environ") if "=" in pair)


def _strings(file: Path) -> list[str]:
    # Each ends with a zero byte.
    return os.fsdecode(file.read_bytes()).split("\0")[:-1]
