"""A balancer for tests: each connection goes to any of several addresses, past those that are dead.

The addresses may change meanwhile, as when a copy is taken out before it is stopped.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


@contextmanager
def balanced(ports: Sequence[int]) -> Iterator[int]:
    """The port of a balancer before these ports of this machine; no connection remembers another."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=carry, args=(client,), daemon=True).start()

    def carry(client: socket.socket) -> None:
        with client:
            # By chance: in turns, clients that come in turns would each have an address to themselves.
            for port in random.sample(list(ports), len(ports)):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as server:
                    server.settimeout(None)
                    back = threading.Thread(target=pump, args=(server, client), daemon=True)
                    back.start()
                    pump(client, server)
                    back.join()
                    return

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65_536):
                sink.sendall(piece)
        for end, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
            with suppress(OSError):
                end.shutdown(how)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        port: int = listener.getsockname()[1]
        yield port
    finally:
        # A thread in `accept` wakes at a connection only.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
