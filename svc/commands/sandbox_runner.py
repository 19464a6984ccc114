"""`trace-svc sandbox-runner`: run agents for a service until it is told to stop; print where it is.

With `--child` it is the child of a service: its standard input is a pipe that ends with the service, and so
does it.
"""

from __future__ import annotations

import argparse

import trio

from protocol.operator import OperatorError
from protocol.release import release
from svc.config.table import Settings


def add(parser: argparse.ArgumentParser) -> None:
    """One argument, of the service's own use."""
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.epilog = "Needs the same SANDBOX_RUNNER_KEY as the service, and listens on SANDBOX_RUNNER_BIND."


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises `OperatorError` without a key."""
    # What follows takes a second to import, and help need not wait for it.
    from svc.domain.pricing.prices import PriceBook
    from svc.runner.starting import serve_runner, stop_on_signals
    from svc.runtime.child import end_with_parent, parent_pipe
    from svc.wiring.runner import backend, local_cli, surrounding

    if settings.runner_key is None:
        raise OperatorError("SANDBOX_RUNNER_KEY is blank: set it to the same key as for the service")
    host, port = settings.runner_bind
    if arguments.child:
        pipe, answers = parent_pipe()
        end_with_parent(pipe, seconds=5.0)
    stop = trio.Event()

    def ready(url: str) -> None:
        if arguments.child:
            with open(answers, "w", encoding="utf-8", closefd=False) as answer_file:
                answer_file.write(url + "\n")
        else:
            print(f"the sandbox runner is ready at {url}", flush=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_on_signals, stop)
        await serve_runner(
            f"{host}:{port}",
            key=settings.runner_key,
            version=release(),
            around=surrounding(settings),
            backend=backend(settings),
            cli=local_cli(settings),
            prices=PriceBook(),
            stop=stop,
            ready=ready,
        )
        nursery.cancel_scope.cancel()
